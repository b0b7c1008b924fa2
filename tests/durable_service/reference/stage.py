"""One task in a store whose clock is moved by hand: it begins at 1000, and a lease lasts 100 ms."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from durable_service.core import actions, claims, leases, outcomes
from durable_service.core.admission import TaskCreation
from durable_service.core.approvals import Decided, Verdict, decide
from durable_service.core.budgets import reserve
from durable_service.core.definition import TaskKey
from durable_service.core.model import Action, Holder, Reservation, TaskRecord
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.store.base import TaskStore
from tests.durable_service.core.tasks import HELLO, LEASE_MS, definition

KEY = TaskKey("tenant", "task")


@dataclass
class Dial:
    """The two clocks of a store: the steady one only goes on, the wall clock can be set."""

    now_ms: int = 1_000
    set_by_ms: int = 0

    def steady(self) -> int:
        return self.now_ms

    def wall(self) -> int:
        return self.now_ms + self.set_by_ms


@dataclass
class Stage:
    store: TaskStore
    dial: Dial
    holder: Holder = field(default_factory=lambda: Holder("nobody", 0))
    claimed: int = 0

    async def begin(self, **changes: Any) -> "Stage":
        await self.store.create(TaskCreation(definition(**changes)))
        return self

    def pass_ms(self, milliseconds: int) -> None:
        self.dial.now_ms += milliseconds

    async def record(self) -> TaskRecord:
        record = await self.store.get(KEY)
        assert record is not None
        return record

    async def action(self, action_id: str = "send") -> Action:
        return (await self.record()).actions[action_id]

    async def run(self, command: Callable[..., Any], *details: Any) -> Any:
        decision = await self.store.update(KEY, lambda record, now: command(record, *details, now))
        return decision.answer

    async def claim(self, worker: str = "worker-1", *, recovery: bool = False) -> claims.ClaimAnswer:
        self.claimed += 1
        request = claims.ClaimRequest(worker, f"claim-{self.claimed}", LEASE_MS)
        answer = await self.run(claims.claim_for_recovery if recovery else claims.claim, request)
        if isinstance(answer, claims.Claimed):
            self.holder = Holder(worker, answer.lease.fence)
        assert isinstance(answer, claims.ClaimAnswer)
        return answer

    async def prepare(
        self, action_id: str = "send", approver: str | None = None, until: int = 5_000
    ) -> Action:
        approval = (
            None if approver is None else actions.ApprovalRequest(f"approval-{action_id}", approver, until)
        )
        request = actions.ActionRequest(action_id, "fixture@1", "inbox", HELLO, approval)
        action = await self.run(actions.prepare, self.holder, request)
        assert isinstance(action, Action)
        return action

    async def dispatch(self, dispatch_id: str = "dispatch-1", action_id: str = "send") -> Any:
        return await self.run(actions.begin_dispatch, self.holder, action_id, dispatch_id, "fixture@1")

    async def confirm(self, result_ref: str = "result:1") -> None:
        await self.run(actions.confirm, self.holder, "send", result_ref)

    async def execute(self, dispatch_id: str = "dispatch-1") -> Any:
        """What a handler asks of its ledger; the connector is yet to be called."""
        await self.prepare()
        return await self.dispatch(dispatch_id)

    async def reconcile(self, finding: Finding, evidence_ref: str = "evidence:1") -> Action:
        evidence = Evidence(finding, evidence_ref, "result:found" if finding is Finding.CONFIRMED else None)
        bound = (await self.action()).prepared_hash
        action = await self.run(reconcile, self.holder, "send", bound, evidence)
        assert isinstance(action, Action)
        return action

    async def decide(self, *, approved: bool = True, actor: str = "reviewer") -> Decided:
        bound = (await self.action()).prepared_hash
        answer = await self.run(decide, Verdict("approval-send", actor, bound, approved))
        assert isinstance(answer, Decided)
        return answer

    async def reserve(self, name: str, tokens: int, cost_micros: int) -> None:
        await self.run(reserve, self.holder, Reservation(name, tokens, cost_micros))

    async def release(self) -> None:
        await self.run(leases.release, self.holder)

    async def complete(self, result_ref: str | None = None) -> Any:
        return (await self.run(outcomes.complete, self.holder, result_ref)).state

    async def fail(self, failure: str = "broken") -> Any:
        return (await self.run(outcomes.fail, self.holder, failure)).state

    async def cancel(self) -> None:
        await self.run(outcomes.cancel, "")

    async def acknowledge(self) -> Any:
        return (await self.run(outcomes.acknowledge_cancellation, self.holder)).state

    async def journal(self) -> list[tuple[int, str]]:
        page = await self.store.events(KEY, 0, 1_000)
        return [(event.sequence, event.type) for event in page.events]
