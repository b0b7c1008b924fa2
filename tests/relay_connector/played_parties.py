"""A site and the records of a task, played by the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from durable_service.client import NotSentError, StopSignal
from durable_service.client.actions import Action, action_of
from durable_service.client.errors import DurableError
from relay_connector import RelayConnector
from relay_connector.asking import Asking
from relay_service.client import GeneratePayload, HandOver, JobResult, OkOutcome, RelayError
from relay_service.client.outcomes import Outcome, RunMetadata
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from tests.durable_service.client.played_service import action
from tests.harness.waiting import eventually

NOW_MS = 1_700_000_000_000
DEADLINE_MS = NOW_MS + 600_000
# SHA-256 of "sealwork/relay-connector/v1/job", a newline, and the idempotency key that `action` has.
DIGEST = "79ccbde2e91d1a1ae837eacc2d63179fb7ad70a66b2a18c69154a92b8ccb4cb9"
JOB = f"durable-{DIGEST}"
ARTIFACT = f"answer-{DIGEST}"
GIVEN = f"relay-prompt-given:{JOB}"
HELLO = GeneratePayload("hello")


def relay_refusal(
    reason: str,
    code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION,
    *,
    retry_after_ms: int | None = None,
) -> RelayError:
    return RelayError(ServiceError(code, reason, "as the test says", retry_after_ms=retry_after_ms))


def durable_refusal(reason: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION) -> DurableError:
    return DurableError(ServiceError(code, reason, "as the test says"))


def result(outcome: Outcome | None = None) -> JobResult:
    said = outcome or OkOutcome("an answer")
    ran = RunMetadata("small", "process", 12, "end" if said.disposition == "ok" else None)
    return JobResult(JOB, said, ran, "desk", "alice", "BYOLLM-1", "l-1")


@dataclass
class PlayedHandle:
    """A job as the site hands it out."""

    site: "PlayedSite"
    id: str
    ending: "asyncio.Future[JobResult]"
    acknowledged: bool = False
    abandoned: bool = False

    async def result(self) -> JobResult:
        return await asyncio.shield(self.ending)

    async def cancel(self) -> bool:
        self.site.said.append("cancel")
        if self.site.on_cancel is not None:
            self.site.on_cancel(self)
        return True

    def acknowledge(self) -> None:
        self.acknowledged = True

    def abandon(self) -> None:
        self.site.said.append("abandon")
        self.abandoned = True


@dataclass
class PlayedSite:
    """A site that notes what it is asked for.

    Attributes:
        refusals: What the next enqueues are refused with.
        there: What a look-up finds: a result, or a refusal.
        said: What was asked of it, in order.
    """

    site_id: str = "shop"
    refusals: list[Exception] = field(default_factory=list)
    there: JobResult | Exception = field(default_factory=lambda: relay_refusal("JOB_NOT_FOUND"))
    said: list[str] = field(default_factory=list)
    enqueued: list[dict[str, Any]] = field(default_factory=list)
    handles: list[PlayedHandle] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    on_cancel: Any = None

    async def enqueue(self, payload: Any, **options: Any) -> PlayedHandle:
        self.enqueued.append({"payload": payload, **options})
        if self.refusals:
            raise self.refusals.pop(0)
        loop = asyncio.get_running_loop()
        self.handles.append(PlayedHandle(self, options["job_id"], loop.create_future()))
        return self.handles[-1]

    async def ask_to_give(self, lease_id: str = "l-1", *, seconds: float = 10.0) -> bool:
        """What the site does when a device has claimed."""
        admitted: bool = await self.enqueued[-1]["admit"](HandOver(JOB, lease_id, "desk", seconds))
        return admitted

    async def read_result(self, job_id: str) -> JobResult:
        self.said.append(f"read {job_id}")
        if isinstance(self.there, Exception):
            raise self.there
        return self.there

    async def settle(self, *, job_ids: list[str]) -> None:
        self.settled += job_ids

    def end(self, ending: JobResult | Exception) -> None:
        """How the newest job ends."""
        future = self.handles[-1].ending
        if isinstance(ending, Exception):
            future.set_exception(ending)
            future.exception()
        else:
            future.set_result(ending)


@dataclass
class PlayedRecords:
    """The records of one task.

    Attributes:
        writing: Cleared to hold up a checkpoint.
        refusal: What the next write is refused with.
    """

    checkpoints: dict[str, tuple[Any, int]] = field(default_factory=dict)
    artifacts: dict[str, tuple[bytes, str, int]] = field(default_factory=dict)
    puts: int = 0
    writing: asyncio.Event = field(default_factory=asyncio.Event)
    entered: int = 0
    refusal: Exception | None = None
    largest: int = 1_000_000

    async def checkpoint(self, name: str, value: Any, *, ttl_ms: int) -> None:
        self.entered += 1
        await self.writing.wait()
        if self.refusal is not None:
            raise self.refusal
        self.checkpoints[name] = (value, ttl_ms)

    async def snapshot(self, name: str) -> Any:
        return self.checkpoints.get(name, (None, 0))[0]

    async def artifact(self, name: str, content: bytes, *, media_type: str, ttl_ms: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        if len(content) > self.largest:
            raise durable_refusal("ARTIFACT_TOO_LARGE", grpc.StatusCode.INVALID_ARGUMENT)
        assert self.artifacts.get(name, (content,))[0] == content
        self.puts += name not in self.artifacts
        self.artifacts[name] = (content, media_type, ttl_ms)

    async def read_artifact(self, name: str) -> bytes:
        if name not in self.artifacts:
            raise durable_refusal("ARTIFACT_NOT_FOUND", grpc.StatusCode.NOT_FOUND)
        return self.artifacts[name][0]


class Scene:
    """One action, with everybody around it."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock(NOW_MS)
        self.site = PlayedSite()
        self.records = PlayedRecords()
        self.records.writing.set()
        self.signal = StopSignal("t-1")
        site: Any = self.site
        self.connector = RelayConnector(site, clock=self.clock, **options)
        wanted = self.connector.ask("a-1", HELLO, owner="alice", deadline_at_ms=DEADLINE_MS)
        self.args = wanted.args
        message = action("EXECUTING", dispatch_fence=7)
        message.destination, message.connector_version = wanted.destination, "relay@1"
        from durable_service.client.json_text import encode_json

        message.args = encode_json(wanted.args)
        self.action: Action = action_of(message)

    @property
    def asking(self) -> Asking:
        records: Any = self.records
        bound = self.connector.bind(records)
        assert isinstance(bound, Asking)
        return bound

    @asynccontextmanager
    async def dispatching(self) -> "AsyncIterator[asyncio.Task[str]]":
        """A dispatch whose job the relay has; it is over when the block is."""
        task = asyncio.ensure_future(self.asking.dispatch(self.action, self.signal))
        await eventually(lambda: self.site.handles or task.done(), 5, "the job to be enqueued")
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def kept(self) -> str:
        """The answer that is kept."""
        return self.records.artifacts[ARTIFACT][0].decode()


__all__ = ["NotSentError", "Scene"]
