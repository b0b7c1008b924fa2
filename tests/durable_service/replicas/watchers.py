"""Those who watch while services come and go: whatever they are told, they take up where they were."""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from durable_service.client import Client, DurableError, TaskState
from durable_service.client.methods import WATCH_TASKS
from durable_service.client.record_reader import Gap
from durable_service.client.task_view import task_of
from durable_service.core.states import TERMINAL
from sealwork.durable.v1 import task_service_pb2
from service_common.unary_calls import may_help_again
from tests.durable_service.replicas.crew import insist

# A restless watcher moves on to the next replica after that many frames.
_FRAMES: Final = 3


@dataclass
class Seen:
    """What one watcher of tasks has seen of their ends."""

    ends: dict[str, set[TaskState]] = field(default_factory=dict)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    moves: int = 0

    def note(self, task_id: str, state: TaskState | None) -> None:
        if state in TERMINAL:
            assert state is not None
            self.ends.setdefault(task_id, set()).add(state)


async def watch_steadily(alice: Client, seen: Seen) -> None:
    """Keeps to its stream, and takes it up again when it is lost."""
    async for task in alice.tasks.watch():
        seen.note(task.id, task.state)


async def watch_restlessly(at_each: Sequence[Client], seen: Seen) -> None:
    """Asks one replica after the other to go on where the last one has led it."""
    token = ""
    for client in itertools.cycle(at_each):
        seen.moves += 1
        try:
            request = task_service_pb2.WatchTasksRequest(resume_token=token)
            async with aclosing(client.calls.follow(WATCH_TASKS, request)) as frames:
                left = _FRAMES
                async for frame in frames:
                    for task in map(task_of, frame.batch.tasks):
                        seen.note(task.id, task.state)
                    token = frame.resume_token or token
                    seen.begun.set()
                    left -= bool(frame.batch.tasks)
                    if not left or frame.HasField("drain_notice"):
                        break
        except DurableError as error:
            if not may_help_again(error):
                raise
            await client.calls.pause(1, error)


async def read_journal(alice: Client, task_id: str) -> list[int]:
    """The sequence numbers of a task's journal as somebody is told them who follows it to its end."""
    sequences: list[int] = []

    async def follow() -> None:
        async for entry in alice.records.follow(task_id, after=sequences[-1] if sequences else 0):
            assert not isinstance(entry, Gap), entry
            sequences.append(entry.sequence)

    await insist(follow)
    return sequences
