"""A task of the tests, and short words for what happens to it. Time begins at 1000; a lease lasts 100 ms."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from durable_service.core import actions, admission, claims, leases, outcomes
from durable_service.core.approvals import Decided, Verdict, decide
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Budget, Identity, TaskDefinition
from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import Action, Approval, Ending, Holder, TaskEvent, TaskRecord
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.core.step import Answer, Decision
from durable_service.core.succession import check_succession

START_MS = 1_000
LEASE_MS = 100
HELLO = CanonicalJson('{"message":"hello"}')
IDENTITY = Identity("tenant", "actor", "session", "run", "root")


def definition(**changes: Any) -> TaskDefinition:
    base = TaskDefinition(
        "task",
        IDENTITY,
        "sha256:manifest",
        "input:one",
        1,
        ("grant:send",),
        Budget(max_attempts=10, max_tokens=10, max_cost_micros=20),
    )
    return replace(base, **changes)


def refused(call: Callable[[], object]) -> DomainError:
    """The refusal of a call that has to be refused."""
    try:
        call()
    except DomainError as error:
        return error
    raise AssertionError("it was not refused")


def reason(call: Callable[[], object]) -> Reason:
    return refused(call).reason


@dataclass
class Story:
    """One task through time: each command is checked against what every update must keep."""

    record: TaskRecord
    now_ms: int = START_MS
    events: list[TaskEvent] = field(default_factory=list)
    holder: Holder = field(default_factory=lambda: Holder("worker-1", 0))
    claim_count: int = 0

    @classmethod
    def begin(cls, **changes: Any) -> "Story":
        creation = admission.TaskCreation(definition(**changes))
        decision = admission.create(None, creation, START_MS)
        return cls(decision.record, events=list(decision.events))

    def apply(self, decision: Decision[Answer]) -> Answer:
        if decision.written:
            check_succession(self.record, decision.record)
            self.record = decision.record
            self.events.extend(decision.events)
        else:
            assert decision.record is self.record
            assert decision.events == ()
        return decision.answer

    def claim(self, worker: str = "worker-1", *, recovery: bool = False) -> claims.ClaimAnswer:
        self.claim_count += 1
        request = claims.ClaimRequest(worker, f"claim-{self.claim_count}", LEASE_MS)
        command = claims.claim_for_recovery if recovery else claims.claim
        answer = self.apply(command(self.record, request, self.now_ms))
        if isinstance(answer, claims.Claimed):
            self.holder = Holder(worker, answer.lease.fence)
        return answer

    def pass_ms(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    def prepare(self, action_id: str = "send", approver: str | None = None, until: int = 5_000) -> Action:
        approval = (
            None if approver is None else actions.ApprovalRequest(f"approval-{action_id}", approver, until)
        )
        request = actions.ActionRequest(action_id, "fixture@1", "inbox", HELLO, approval)
        return self.apply(actions.prepare(self.record, self.holder, request, self.now_ms))

    def dispatch(self, action_id: str = "send", dispatch_id: str = "dispatch-1") -> actions.DispatchAnswer:
        return self.apply(
            actions.begin_dispatch(self.record, self.holder, action_id, dispatch_id, "fixture@1", self.now_ms)
        )

    def confirm(self, action_id: str = "send", result_ref: str = "result:1") -> Action:
        return self.apply(actions.confirm(self.record, self.holder, action_id, result_ref, self.now_ms))

    def mark_unknown(self, action_id: str = "send") -> Action:
        return self.apply(actions.mark_unknown(self.record, self.holder, action_id, self.now_ms))

    def reconcile(
        self, finding: Finding, evidence_ref: str = "evidence:1", action_id: str = "send"
    ) -> Action:
        result_ref = "result:found" if finding is Finding.CONFIRMED else None
        evidence = Evidence(finding, evidence_ref, result_ref)
        bound = self.record.actions[action_id].prepared_hash
        return self.apply(reconcile(self.record, self.holder, action_id, bound, evidence, self.now_ms))

    def decide(self, *, approved: bool = True, actor: str = "reviewer", action_id: str = "send") -> Decided:
        approval = self.approval(action_id)
        verdict = Verdict(approval.id, actor, approval.prepared_hash, approved)
        return self.apply(decide(self.record, verdict, self.now_ms))

    def release(self) -> None:
        self.apply(leases.release(self.record, self.holder, self.now_ms))

    def take_back(self) -> None:
        self.apply(leases.release(self.record, self.holder, self.now_ms, Ending.TAKEN_BACK))

    def complete(self, result_ref: str | None = None) -> outcomes.Ended:
        return self.apply(outcomes.complete(self.record, self.holder, result_ref, self.now_ms))

    def fail(self, failure: str = "broken") -> outcomes.Ended:
        return self.apply(outcomes.fail(self.record, self.holder, failure, self.now_ms))

    def cancel(self, why: str = "") -> outcomes.CancelAnswer:
        return self.apply(outcomes.cancel(self.record, why, self.now_ms))

    def acknowledge(self) -> outcomes.Ended:
        return self.apply(outcomes.acknowledge_cancellation(self.record, self.holder, self.now_ms))

    def approval(self, action_id: str = "send") -> Approval:
        return self.record.approvals[self.record.actions[action_id].approval_id or ""]

    def action(self, action_id: str = "send") -> Action:
        return self.record.actions[action_id]

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def suspended(self) -> "Story":
        """Claimed, and suspended by an action that waits for the reviewer; the lease is released."""
        self.claim()
        self.prepare(approver="reviewer")
        self.dispatch()
        self.release()
        return self
