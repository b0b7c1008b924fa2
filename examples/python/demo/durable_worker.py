"""A worker of the durable service, as a process of its own: it books a room and sends invitations.

The outside world is a file: one line for each effect, with its idempotency key. With `--slow` the answer of
the outside comes long after the effect, so that there is time to kill whoever waits for it.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

# Run as a file, Python looks for modules beside it; the names here start at the repository.
ROOT = Path(__file__).resolve().parents[3]
sys.path[:1] = [str(ROOT), str(ROOT / "protos" / "gen" / "python")]

from durable_service.client import (  # noqa: E402
    Action,
    ActionInput,
    ApprovalNeed,
    Client,
    NotClaimed,
    PrincipalKey,
    StopSignal,
    TaskContext,
    Worker,
)
from durable_service.client.connectors import Absent, Found  # noqa: E402

DRIVER = "party@1"
TASK = "party"
APPROVAL_MS = 600_000
SLOW_SECONDS = 600.0


class Outside:
    """The connector: it does the work, and can look up whether it was done."""

    version = "outside@1"

    def __init__(self, file: Path, *, slow: bool) -> None:
        self._file = file
        self._slow = slow

    async def dispatch(self, action: Action, signal: StopSignal) -> str:  # noqa: ARG002 - nothing to stop
        with self._file.open("a", encoding="utf-8") as outside:
            outside.write(f"{action.idempotency_key} {action.id}\n")
            outside.flush()
            os.fsync(outside.fileno())
        print(f"sent {action.id}", flush=True)
        if self._slow:
            await asyncio.sleep(SLOW_SECONDS)
        return f"outside:{action.id}"

    async def reconcile(self, action: Action) -> Found | Absent:
        """Looks for the key. Who had sent it is dead here, so that nothing can arrive any more."""
        lines = self._file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if line.startswith(action.idempotency_key):
                return Found(f"outside:{action.id}", f"line {number} of the outside's book")
        return Absent("the outside's book has no such key")


async def plan(context: TaskContext, outside: Outside) -> str:
    """The handler: it runs from its start whenever the task is claimed."""
    print(f"runs, fence {context.fence}", flush=True)
    await context.reserve(tokens=40)
    await context.execute(ActionInput("book-room", "rooms.example", context.input), outside)
    need = ApprovalNeed("bob", int(time.time() * 1000) + APPROVAL_MS)
    await context.execute(ActionInput("send-invitations", "post.example", {"to": 12}, need), outside)
    return "outside:party"


async def settle(worker: Worker, outside: Outside) -> None:
    """What somebody who finds the task does: it is refused, so the open outcome is settled by evidence."""
    refused = await worker.run_task(TASK)
    if isinstance(refused, NotClaimed):
        print(f"refused: {refused.reason}, {' '.join(refused.action_ids)}", flush=True)
    settled = await worker.recover(TASK, [outside])
    if not isinstance(settled, NotClaimed):
        for action in settled:
            print(f"settled {action.id} {action.state} by {action.evidence_ref}", flush=True)


async def serve(options: argparse.Namespace) -> None:
    outside = Outside(options.outside, slow=options.slow)
    key = PrincipalKey.load(options.key)
    async with Client(options.address, principal_id="worker", key=key) as client:
        worker = Worker(client, {DRIVER: lambda context: plan(context, outside)}, worker_id=options.name)
        if options.settle:
            await settle(worker, outside)
        await worker.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--outside", type=Path, required=True)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--settle", action="store_true")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
