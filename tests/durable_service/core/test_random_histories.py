"""Random histories of one task, with crashes between: what must never happen does not."""

from collections.abc import Callable
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable_service.core import actions, leases, outcomes
from durable_service.core.actions import Dispatch
from durable_service.core.budgets import reserve
from durable_service.core.claims import Claimed
from durable_service.core.definition import Budget
from durable_service.core.errors import DomainError, Reason
from durable_service.core.lapses import lapse
from durable_service.core.model import Holder, Reservation, TaskRecord
from durable_service.core.reconciliation import Finding
from durable_service.core.states import ActionState, ApprovalDecision

from .tasks import Story

MAY_BECOME = {
    "prepared": {"executing", "rejected", "canceled"},
    "awaiting_approval": {"executing", "rejected", "canceled"},
    "executing": {"confirmed", "unknown", "canceled", "prepared"},
    "unknown": {"confirmed", "prepared", "canceled"},
    "confirmed": set(),
    "rejected": set(),
    "canceled": set(),
}
ENDS = {"completed", "failed", "canceled", "stopped"}
# Faults of the program and not of its caller: no command may run into them.
FAULTS = {Reason.INVARIANT}

action_ids = st.sampled_from(["plain", "gated"])
workers = st.sampled_from(["worker-1", "worker-2"])
dispatch_ids = st.sampled_from(["d1", "d2"])
evidences = st.sampled_from(["e1", "e2"])


class History(RuleBasedStateMachine):
    @initialize(attempts=st.integers(1, 4))
    def begin(self, attempts: int) -> None:
        self.story = Story.begin(budget=Budget(attempts, 10, 20))
        self.before = self.story.record
        # Effects that were let out and whose outcome nobody has written down.
        self.outside: set[str] = set()
        self.used: set[str] = set()
        self.holders: list[Holder] = [self.story.holder]

    @rule(ms=st.sampled_from([1, 50, 99, 100, 101, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.story.pass_ms(ms)

    @rule()
    def sweep(self) -> None:
        self.story.apply(lapse(self.story.record, self.story.now_ms))

    @rule(worker=workers, recovery=st.booleans())
    def claim(self, worker: str, recovery: bool) -> None:
        answer = self.story.claim(worker, recovery=recovery)
        if isinstance(answer, Claimed):
            # Exactly one live lease: the fence of the one before is refused from here on.
            assert answer.lease.fence == len(self.holders)
            self.holders.append(self.story.holder)
            if not recovery:
                assert not self.outside

    @rule(index=st.integers(0, 20))
    def an_old_holder_comes_back(self, index: int) -> None:
        self.story.holder = self.holders[index % len(self.holders)]

    @rule(action_id=action_ids)
    def prepare(self, action_id: str) -> None:
        approver = "reviewer" if action_id == "gated" else None
        until = self.story.now_ms + 400
        self.attempt(lambda: self.story.prepare(action_id, approver, until))

    @rule(action_id=action_ids, dispatch_id=dispatch_ids)
    def dispatch(self, action_id: str, dispatch_id: str) -> None:
        story = self.story
        written = story.record.revision
        answer = self.write(lambda: story.dispatch(action_id, dispatch_id))
        if not isinstance(answer, Dispatch) or story.record.revision == written:
            return
        assert action_id not in self.outside, "an effect was let out twice"
        self.outside.add(action_id)
        if answer.action.approval_id is not None:
            assert answer.action.approval_id not in self.used, "an approval was used twice"
            self.used.add(answer.action.approval_id)
            approval = story.approval(action_id)
            assert approval.decision is ApprovalDecision.APPROVED
            assert approval.expires_at_ms > story.now_ms

    @rule(action_id=action_ids, dispatch_id=dispatch_ids)
    def the_whole_way_to_the_effect(self, action_id: str, dispatch_id: str) -> None:
        # Single steps seldom come this far in the right order.
        self.claim("worker-1", recovery=False)
        self.prepare(action_id)
        self.decide(approved=True)
        self.dispatch(action_id, dispatch_id)

    @rule(action_id=action_ids, evidence=evidences, dispatch_id=dispatch_ids)
    def it_was_never_there_and_is_sent_again(self, action_id: str, evidence: str, dispatch_id: str) -> None:
        self.claim("worker-2", recovery=True)
        self.reconcile(action_id, Finding.ABSENT, evidence)
        # Nothing is sent under a lease to recover.
        self.attempt(self.story.release)
        self.claim("worker-2", recovery=False)
        self.dispatch(action_id, dispatch_id)

    @rule(action_id=action_ids)
    def confirm(self, action_id: str) -> None:
        if self.attempt(lambda: self.story.confirm(action_id)) is not None:
            self.outside.discard(action_id)

    @rule(action_id=action_ids)
    def lose_the_answer(self, action_id: str) -> None:
        self.attempt(lambda: self.story.mark_unknown(action_id))

    @rule(action_id=action_ids)
    def abort(self, action_id: str) -> None:
        story = self.story
        call = partial(actions.abort_dispatch, story.record, story.holder, action_id, story.now_ms)
        if self.attempt(lambda: story.apply(call())) is not None:
            self.outside.discard(action_id)

    @rule(action_id=action_ids, finding=st.sampled_from(Finding), evidence=evidences)
    def reconcile(self, action_id: str, finding: Finding, evidence: str) -> None:
        if action_id not in self.story.record.actions:
            return
        settled = self.write(lambda: self.story.reconcile(finding, evidence, action_id))
        if settled is not None and finding is not Finding.UNKNOWN:
            self.outside.discard(action_id)

    @rule(approved=st.booleans())
    def decide(self, approved: bool) -> None:
        if "gated" in self.story.record.actions:
            self.attempt(lambda: self.story.decide(approved=approved, action_id="gated"))

    @rule(name=st.sampled_from(["r1", "r2", "r3"]), tokens=st.integers(0, 6), cost=st.integers(0, 12))
    def reserve(self, name: str, tokens: int, cost: int) -> None:
        story = self.story
        reservation = Reservation(name, tokens, cost)
        call = partial(reserve, story.record, story.holder, reservation, story.now_ms)
        self.attempt(lambda: story.apply(call()))

    @rule()
    def renew(self) -> None:
        story = self.story
        call = partial(leases.renew, story.record, story.holder, 100, story.now_ms)
        self.attempt(lambda: story.apply(call()))

    @rule()
    def release(self) -> None:
        self.attempt(self.story.release)

    @rule(ms=st.integers(0, 300))
    def yield_task(self, ms: int) -> None:
        story = self.story
        until = story.now_ms + ms
        call = partial(leases.yield_task, story.record, story.holder, until, "", story.now_ms)
        self.attempt(lambda: story.apply(call()))

    @rule(stopped=st.booleans())
    def complete(self, stopped: bool) -> None:
        story = self.story
        call = partial(outcomes.complete, story.record, story.holder, "r", story.now_ms, stopped=stopped)
        self.attempt(lambda: story.apply(call()))

    @rule()
    def fail(self) -> None:
        self.attempt(self.story.fail)

    @rule()
    def cancel(self) -> None:
        self.attempt(self.story.cancel)

    @rule()
    def acknowledge(self) -> None:
        self.attempt(self.story.acknowledge)

    def attempt(self, call: Callable[[], object]) -> object | None:
        """What a command answers, None when it is refused; a refusal changes nothing."""
        record, events = self.story.record, len(self.story.events)
        try:
            return call()
        except DomainError as refusal:
            refused = refusal.reason
        assert refused not in FAULTS
        assert self.story.record is record
        assert len(self.story.events) == events
        return None

    def write(self, call: Callable[[], object]) -> object | None:
        """An attempt, checked at once: rules of several steps may move an action more than once."""
        answer = self.attempt(call)
        self.the_record_follows_from_the_one_before()
        return answer

    @invariant()
    def the_record_follows_from_the_one_before(self) -> None:
        before, after = self.before, self.story.record
        self.before = after
        assert after.attempts[: len(before.attempts)] == before.attempts
        assert 0 <= after.reserved_tokens <= 10
        assert 0 <= after.reserved_cost_micros <= 20
        assert after.reserved_tokens == sum(item.tokens for item in after.reservations.values())
        assert len(after.attempts) <= after.definition.budget.max_attempts + after.grace_attempts
        self.actions_follow(before, after)
        if before.state in ENDS:
            assert (after.state, after.lease) == (before.state, None)

    def actions_follow(self, before: TaskRecord, after: TaskRecord) -> None:
        for name, old in before.actions.items():
            new = after.actions[name]
            assert (new.args, new.prepared_hash, new.idempotency_key) == (
                old.args,
                old.prepared_hash,
                old.idempotency_key,
            )
            assert new.state == old.state or new.state in MAY_BECOME[old.state]
        for approval_id, approval in before.approvals.items():
            assert after.approvals[approval_id].consumed or not approval.consumed

    @invariant()
    def what_is_outside_is_written_down(self) -> None:
        states = {name: action.state for name, action in self.story.record.actions.items()}
        for name in self.outside:
            assert states[name] in {ActionState.EXECUTING, ActionState.UNKNOWN}
        if self.story.record.state in ENDS:
            assert not self.outside

    @invariant()
    def the_journal_has_no_gap(self) -> None:
        assert [event.sequence for event in self.story.events] == list(range(1, len(self.story.events) + 1))
        assert self.story.record.last_sequence == len(self.story.events)

    @invariant()
    def states_are_told(self) -> None:
        told = [event.data for event in self.story.events if event.type == "task.state"]
        state = "queued"
        for data in told:
            assert data.startswith(f'{{"before":"{state}","state":"')
            state = data.split('"')[-2]
        assert state == self.story.record.state


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
