"""What must be true of every task once all is over, whatever was killed in between."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from durable_service.client import ActionState, Client, TaskState, View
from durable_service.client.record_reader import Event
from durable_service.core.states import TERMINAL
from tests.durable_service.replicas.crew import Crew, insist

# By themselves, acts of the holder that end a lease before its time.
_GIVEN_BACK: Final = frozenset({"lease.released", "task.yielded"})


@dataclass
class Span:
    """One lease as the journal has it; instants by the database's clock.

    Attributes:
        given_back_ms: when its holder gave it up, or the task ended under it.
        written_off_ms: when it was written down that its time was over.
    """

    fence: int
    granted_ms: int
    given_back_ms: int | None = None
    written_off_ms: int | None = None


async def journal_of(alice: Client, task_id: str) -> list[Event]:
    async def read() -> list[Event]:
        entries = [entry async for entry in alice.records.follow(task_id, follow=False)]
        assert all(isinstance(entry, Event) for entry in entries)
        return entries  # type: ignore[return-value]

    return await insist(read)


def spans_of(journal: Sequence[Event]) -> list[Span]:
    """The leases of a task, in the order in which they were granted."""
    spans: list[Span] = []
    for event in journal:
        data: Any = event.data
        if event.type == "lease.granted":
            spans.append(Span(data["fence"], event.at_ms))
        elif event.type == "lease.expired":
            assert spans[-1].fence == data["fence"]
            spans[-1].written_off_ms = event.at_ms
        elif spans and (event.type in _GIVEN_BACK or _ends(event)):
            spans[-1].given_back_ms = event.at_ms
    return spans


def check_leases(task_id: str, journal: Sequence[Event], ends_ms: dict[int, int]) -> None:
    """No lease began before the one before it was over by the database's clock.

    Args:
        ends_ms: By fence, the latest instant up to which the lease was ever granted or renewed.
    """
    spans = spans_of(journal)
    assert [span.fence for span in spans] == list(range(1, len(spans) + 1)), task_id
    for span, following in zip_longest(spans, spans[1:]):
        over_ms = span.given_back_ms if span.given_back_ms is not None else ends_ms.get(span.fence, 0)
        if span.written_off_ms is not None and span.given_back_ms is None:
            assert span.written_off_ms >= over_ms, f"{task_id}: {span} was to last until {over_ms}"
        if following is not None:
            assert following.granted_ms >= over_ms, f"{task_id}: {span} until {over_ms}, then {following}"


def check_journal(task_id: str, journal: Sequence[Event]) -> None:
    """No entry is missing, none is there twice, time does not go back, and the task has ended once."""
    assert [event.sequence for event in journal] == list(range(1, len(journal) + 1)), task_id
    times = [event.at_ms for event in journal]
    assert times == sorted(times), task_id
    assert [_ends(event) for event in journal].count(True) == 1, task_id
    kinds = [event.type for event in journal]
    assert kinds.count("task.created") == 1
    assert kinds.count("budget.reserved") <= 1
    assert kinds.count("half.done") <= 1


async def check_effects(crew: Crew, client: Client, task_id: str) -> None:
    """What the ledger says has happened has happened, and nothing else."""
    effects = crew.world.effects
    for action in [action async for action in client.tasks.actions(task_id)]:
        happened = effects[action.idempotency_key]
        assert happened == (action.state is ActionState.CONFIRMED), f"{task_id} {action.id}: {action.state}"
        told = crew.world.confirmed.get(f"{task_id} {action.id}")
        assert told in {None, action.result_ref}


async def check_bytes(alice: Client, task_id: str) -> None:
    """What the handler has put beside the task is as it was."""
    assert await insist(lambda: alice.records.snapshot(task_id, "half")) == {"step": 1}, task_id


async def check_all(crew: Crew) -> None:
    """Every task of the crew, as the service tells of it now."""
    alice, operator = crew.fleet.client("alice"), crew.fleet.client("operator")
    leases: dict[str, dict[int, int]] = {}
    for task_id, fence, _, expires_ms in await crew.fleet.leases():
        ends = leases.setdefault(task_id, {})
        ends[fence] = max(ends.get(fence, 0), expires_ms)
    assert set(crew.ended) == set(crew.created)
    assert max(crew.world.effects.values(), default=0) <= 1, "an effect was repeated"
    for task_id in crew.created:
        task = await insist(lambda task_id=task_id: alice.tasks.get(task_id, View.OWNER))  # type: ignore[misc]
        assert task.state is crew.ended[task_id]
        allowed = {TaskState.COMPLETED} | ({TaskState.CANCELED} if task_id.startswith("cancel") else set())
        assert task.state in allowed, f"{task_id} is {task.state}"
        journal = await journal_of(alice, task_id)
        check_journal(task_id, journal)
        check_leases(task_id, journal, leases.get(task_id, {}))
        await check_effects(crew, operator, task_id)
        if task.state is TaskState.COMPLETED:
            await check_bytes(alice, task_id)


def _ends(event: Event) -> bool:
    data: Any = event.data
    return event.type == "task.state" and data["state"] in {state.value for state in TERMINAL}
