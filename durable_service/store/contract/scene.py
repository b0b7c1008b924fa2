"""The stage on which the contract is played: one store, a few tasks and their workers."""
# ruff: noqa: S101

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from durable_service.core import actions, claims, leases, outcomes
from durable_service.core.admission import TaskCreation
from durable_service.core.approvals import Decided, Verdict, decide
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Budget, Driver, Identity, TaskDefinition, TaskKey
from durable_service.core.errors import DomainError, Reason
from durable_service.core.lapses import lapse
from durable_service.core.model import Holder, TaskRecord
from durable_service.store.base import EventDraft, StoreLimits, TaskChange, TaskStore

TENANT = "tenant"
DRIVER = Driver("fixture", 1)
LEASE_MS = 10_000
# What a store under test is built with: small enough to reach.
CONTRACT_LIMITS = StoreLimits(
    task_bytes=100_000, events_per_task=6, event_bytes_per_task=1_000, event_age_ms=3_600_000
)


class StoreHarness(Protocol):
    """What an implementation brings to the contract, as the fixture `store_harness`."""

    @property
    def store(self) -> TaskStore:
        """A fresh, empty store with `CONTRACT_LIMITS`."""

    async def advance(self, milliseconds: int) -> None:
        """Moves the store's clock on; it stands still otherwise."""

    async def reopen(self) -> bool:
        """Closes the store and opens what it kept as `store`; False when it keeps nothing."""


def key(task_id: str, tenant: str = TENANT) -> TaskKey:
    return TaskKey(tenant, task_id)


def creation(
    task_id: str,
    *,
    tenant: str = TENANT,
    actor: str = "actor",
    driver: Driver | None = DRIVER,
    session: str = "session",
    root: str = "root",
    budget: Budget | None = None,
    **timing: Any,
) -> TaskCreation:
    identity = Identity(tenant, actor, session, "run", root)
    definition = TaskDefinition(
        task_id, identity, "sha256:manifest", "input:one", 1, ("grant",), budget or Budget(), driver
    )
    return TaskCreation(definition, **timing)


async def refusal(call: Any) -> Reason:
    """Why an awaitable call is refused."""
    try:
        await call
    except DomainError as error:
        return error.reason
    raise AssertionError("it was not refused")


@dataclass(slots=True)
class Scene:
    """Short words for what happens in nearly every case."""

    store: TaskStore
    claims: int = 0

    async def create(self, *task_ids: str, **details: Any) -> TaskRecord:
        """Adds tasks; the last one as it stands."""
        records = [(await self.store.create(creation(task_id, **details))).record for task_id in task_ids]
        return records[-1]

    async def record(self, task_id: str, tenant: str = TENANT) -> TaskRecord:
        record = await self.store.get(key(task_id, tenant))
        assert record is not None
        return record

    async def claim(self, task_id: str, worker: str = "worker-1", lease_ms: int = LEASE_MS) -> Holder:
        """Claims a task that is there to be claimed."""
        self.claims += 1
        request = claims.ClaimRequest(worker, f"{worker}-claim-{self.claims}", lease_ms)
        decision = await self.store.update(
            key(task_id), lambda record, now: claims.claim(record, request, now)
        )
        assert isinstance(decision.answer, claims.Claimed)
        return Holder(worker, decision.answer.lease.fence)

    async def run(self, task_id: str, command: Callable[..., Any], *details: Any) -> Any:
        """Runs one of the commands `(record, *details, now_ms)`."""
        decision = await self.store.update(key(task_id), lambda record, now: command(record, *details, now))
        return decision.answer

    async def complete(self, task_id: str, holder: Holder) -> None:
        await self.run(task_id, outcomes.complete, holder, None)

    async def release(self, task_id: str, holder: Holder) -> None:
        await self.run(task_id, leases.release, holder)

    async def sweep(self, task_id: str) -> None:
        await self.run(task_id, lapse)

    async def append(self, task_id: str, holder: Holder, event_id: str, data: str = "1") -> int:
        draft = EventDraft(event_id, "note", CanonicalJson(data))
        return (await self.store.append(key(task_id), holder, draft)).answer.sequence

    async def prepare(
        self, task_id: str, holder: Holder, action_id: str, approver: str | None = None
    ) -> None:
        """An effect, with an approval that expires 60,000 ms from now."""
        until = await self.store.now_ms() + 60_000
        approval = None
        if approver is not None:
            approval = actions.ApprovalRequest(f"{task_id}-{action_id}", approver, until)
        request = actions.ActionRequest(action_id, "fixture@1", "inbox", CanonicalJson("{}"), approval)
        await self.run(task_id, actions.prepare, holder, request)

    async def dispatch(self, task_id: str, holder: Holder, action_id: str) -> actions.DispatchAnswer:
        answer = await self.run(task_id, actions.begin_dispatch, holder, action_id, "d1", "fixture@1")
        assert isinstance(answer, actions.DispatchAnswer)
        return answer

    async def decide(self, task_id: str, approval_id: str, actor: str, *, approved: bool = True) -> Decided:
        record = await self.record(task_id)
        bound = record.approvals[approval_id].prepared_hash
        answer = await self.run(task_id, decide, Verdict(approval_id, actor, bound, approved))
        assert isinstance(answer, Decided)
        return answer

    def watch(self) -> list[TaskChange]:
        """Collects changes from here on."""
        changes: list[TaskChange] = []
        self.store.listen(changes.append)
        return changes
