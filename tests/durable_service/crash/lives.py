"""What the processes of these tests do, from their beginning to a natural or a violent end."""

import asyncio
import hashlib
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from durable_service.client import (
    ActionInput,
    ActionRejectedError,
    ApprovalNeed,
    Client,
    NotClaimed,
    PrincipalKey,
    RunReport,
    TaskContext,
    Worker,
)
from durable_service.client.claimer import Claimer
from durable_service.client.held_task import HeldTask
from durable_service.client.lease_calls import LeaseCalls

from .commits import watch_commits
from .effects import EffectsFile, passed
from .failing_store import FailingStore, heed_signals
from .fuse import Fuse, say
from .hearing import hear_of_others

APPROVAL_MS = 600_000
# As many as one may have.
ARTIFACT_BYTES = 1_000_000
Options = Mapping[str, Any]


def serve(options: Options) -> None:
    """The real command; its store dies before, or right after, a commit."""
    from durable_service import stores, sweeper
    from durable_service.cli import main

    FailingStore.prepare(options.get("trouble", ""), options.get("lease_ms", 0))
    heed_signals()
    watch_commits(_fuse(options), tell_leases=options.get("tell_leases", False))
    # Not names that others should import.
    setattr(stores, "SqliteTaskStore", FailingStore)  # noqa: B010
    # Nobody tells it that the clock of the store has made a leap.
    setattr(sweeper, "_LONGEST_WAIT_MS", 100)  # noqa: B010
    hear_of_others(options)
    sys.argv = ["durable-service", "serve", *options["argv"]]
    main()


def work(options: Options) -> None:
    """A worker with the SDK that runs one task and ends."""
    asyncio.run(_work(options))


def recover(options: Options) -> None:
    """An operator's worker that settles what is open in one task."""
    asyncio.run(_recover(options))


LIVES: Mapping[str, Callable[[Options], None]] = {"serve": serve, "work": work, "recover": recover}


async def _work(options: Options) -> None:
    fuse = _fuse(options)
    _watch_calls(fuse)
    gate = Path(options["gate"]) if options.get("gated_effect") else None
    connector = EffectsFile(Path(options["effects"]), fuse, gate)
    steps = options["steps"]

    async def handle(context: TaskContext) -> str:
        say("claimed", context.fence)
        for step in steps:
            await _step(context, step, connector, fuse, options)
        return "result:task"

    ended: list[RunReport] = []
    async with _client(options) as client:

        def on_end(report: RunReport) -> None:
            ended.append(report)
            stopping.append(asyncio.ensure_future(worker.stop()))

        stopping: list[asyncio.Future[None]] = []
        worker = Worker(
            client, {options["driver"]: handle}, worker_id=options["worker"], slots=1, on_end=on_end
        )
        if options.get("stubborn"):
            _make_stubborn()
        await worker.run()
        await asyncio.gather(*stopping)
    for report in ended:
        say("ended", report.end.value, repr(report.error))


async def _step(
    context: TaskContext, step: str, connector: EffectsFile, fuse: Fuse, options: Options
) -> None:
    match step:
        case "reserve":
            await context.reserve(3, 5, reservation_id="all")
        case "checkpoint":
            await context.records.checkpoint("half", {"step": 1})
        case "event":
            await context.records.append("half.done", {"by": "handler"}, event_id="half")
        case "plain":
            await context.execute(ActionInput("plain", "file", {"n": 1}), connector)
        case "gated":
            need = ApprovalNeed("bob", time.time_ns() // 1_000_000 + APPROVAL_MS)
            try:
                await context.execute(ActionInput("gated", "file", {"n": 2}, need), connector)
            except ActionRejectedError as error:
                say("rejected", error.rejection)
        case "gate":
            await passed(Path(options["gate"]))
        case artifact_id if artifact_id.startswith("artifact-"):
            await context.records.artifact(artifact_id, content_of(artifact_id))
            # Acknowledged to this worker: from here on its bytes must never be lost.
            say("kept", artifact_id)


def content_of(artifact_id: str) -> bytes:
    """What an artifact of this name holds: of all values, and no two artifacts alike."""
    return hashlib.shake_256(artifact_id.encode()).digest(ARTIFACT_BYTES)


async def _recover(options: Options) -> None:
    fuse = _fuse(options)
    _watch_calls(fuse)
    async with _client(options) as client, Worker(client, {}, worker_id=options["worker"]) as worker:
        settled = await worker.recover(options["task"], [EffectsFile(Path(options["effects"]), fuse)])
    if isinstance(settled, NotClaimed):
        say("not claimed", settled.reason)
        return
    for action in settled:
        say("settled", action.id, action.state)


def _fuse(options: Options) -> Fuse:
    point, left = options.get("fuse") or ("", 0)
    return Fuse(point, left)


def _client(options: Options) -> Client:
    key = PrincipalKey.load(Path(options["key"]))
    return Client(options["address"], principal_id=options["principal"], key=key)


def _watch_calls(fuse: Fuse) -> None:
    """Every call under a lease comes by two points: before it is sent, and when its answer is there."""
    make, won = LeaseCalls._make, Claimer.won

    async def watched(self: LeaseCalls, method: Any, request: Any, arm: str) -> Any:
        name = str(method.path).rpartition("/")[2]
        fuse.reach(f"{name}:before")
        answer = await make(self, method, request, arm)
        if name == "ConfirmAction":
            # Acknowledged to this worker: from here on it must never be lost.
            say("confirmed", request.action_id, request.result_ref)
        fuse.reach(f"{name}:after")
        return answer

    async def claimed(self: Claimer, claim: Any, sent_at: float) -> Any:
        fuse.reach("Claim:after")
        return await won(self, claim, sent_at)

    _replace(LeaseCalls, "_make", watched)
    _replace(Claimer, "won", claimed)


def _make_stubborn() -> None:
    """A worker that does not heed its own clock: what stops it then is the service alone."""
    _replace(HeldTask, "require_held", lambda self: None)
    _replace(HeldTask, "is_held", property(lambda self: not self.over))
    _replace(HeldTask, "lose", lambda self, why: None)


def _replace(owner: type, name: str, by: object) -> None:
    setattr(owner, name, by)
