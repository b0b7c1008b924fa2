"""Random histories: the SQLite store answers as the memory store does, also after it was opened again."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from durable_service.core import actions, claims, leases, outcomes
from durable_service.core.approvals import Verdict, decide
from durable_service.core.artifacts import ArtifactContent, put_artifact
from durable_service.core.availability import Queue
from durable_service.core.binding import blob_key
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Driver
from durable_service.core.errors import DomainError
from durable_service.core.extensions import update_extension
from durable_service.core.lapses import lapse
from durable_service.core.model import Holder, TaskRecord
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.core.states import TaskState
from durable_service.core.step import Decision
from durable_service.store.base import (
    ClaimableQuery,
    EventDraft,
    StoreLimits,
    TaskChange,
    TaskQuery,
    TaskStore,
)
from durable_service.store.clock import StoreClock
from durable_service.store.contract.scene import DRIVER, TENANT, creation, key
from durable_service.store.memory import MemoryTaskStore
from durable_service.store.sqlite import SqliteTaskStore

LIMITS = StoreLimits(events_per_task=5, event_bytes_per_task=300, event_age_ms=1_500)
NAMES = ("a", "b", "c")
DIGEST = "sha256:" + "0" * 64
names = st.sampled_from(NAMES)
workers = st.sampled_from(["w1", "w2"])
action_ids = st.sampled_from(["plain", "gated"])


class Agreement(RuleBasedStateMachine):
    """Whatever is asked of the memory store is asked of another one.

    Attributes:
        other: the other store, as `opened` makes it.
        numbers_changes_alike: whether its positions of changes are those of the memory store.
    """

    numbers_changes_alike: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.now_ms = 1_700_000_000_000
        self.loop = asyncio.new_event_loop()
        self.memory = MemoryTaskStore(StoreClock(self.clock, self.clock), LIMITS)
        self.heard: tuple[list[TaskChange], list[TaskChange]] = ([], [])
        self.memory.listen(self.heard[0].append)
        self.other = self.opened()
        self.claims = 0
        self.holders = {name: Holder("w1", 0) for name in NAMES}

    def clock(self) -> int:
        return self.now_ms

    def opened(self) -> TaskStore:
        store = SqliteTaskStore(
            Path(self.folder) / "tasks.db", limits=LIMITS, wall=self.clock, steady=self.clock
        )
        store.listen(self.heard[1].append)
        return store

    def teardown(self) -> None:
        self.loop.run_until_complete(self.other.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.folder)

    def answers(self, call: Callable[[TaskStore], Coroutine[Any, Any, Any]]) -> list[Any]:
        async def answer(store: TaskStore) -> Any:
            try:
                return await call(store)
            except DomainError as refusal:
                return refusal.reason, refusal.details

        return [self.loop.run_until_complete(answer(store)) for store in (self.memory, self.other)]

    def both(self, call: Callable[[TaskStore], Coroutine[Any, Any, Any]]) -> Any:
        first, second = self.answers(call)
        assert first == second
        return first

    def ask(self, question: str, *details: Any) -> None:
        self.both(lambda store: getattr(store, question)(*details))

    def ask_for_changes(self) -> None:
        pages = self.answers(lambda store: store.changes(TENANT, 0, 10))
        if self.numbers_changes_alike:
            assert pages[0] == pages[1]
        # With other numbers, the order is the same.
        first, second = ([record for _, record in page.records] for page in pages)
        assert first == second

    def run(self, name: str, command: Callable[..., Decision[Any]], *details: Any) -> Any:
        def mutate(record: TaskRecord, now_ms: int) -> Decision[Any]:
            return command(record, *details, now_ms)

        return self.both(lambda store: store.update(key(name), mutate))

    @rule(ms=st.sampled_from([1, 40, 100, 1_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def restart(self) -> None:
        self.loop.run_until_complete(self.other.close())
        self.other = self.opened()

    @rule(name=names, timed=st.booleans())
    def create(self, name: str, timed: bool) -> None:
        timing: dict[str, Any] = {"finish_deadline_ms": self.now_ms + 700} if timed else {}
        driver = None if name == "c" else DRIVER
        self.both(lambda store: store.create(creation(name, driver=driver, **timing)))

    @rule(name=names, worker=workers, recovery=st.booleans())
    def claim(self, name: str, worker: str, recovery: bool) -> None:
        self.claims += 1
        request = claims.ClaimRequest(worker, f"claim-{self.claims}", 100)
        decision = self.run(name, claims.claim_for_recovery if recovery else claims.claim, request)
        if isinstance(decision, Decision) and isinstance(decision.answer, claims.Claimed):
            self.holders[name] = Holder(worker, decision.answer.lease.fence)

    @rule(name=names)
    def renew(self, name: str) -> None:
        self.run(name, leases.renew, self.holders[name], 100)

    @rule(name=names)
    def release(self, name: str) -> None:
        self.run(name, leases.release, self.holders[name])

    @rule(name=names)
    def yield_task(self, name: str) -> None:
        self.run(name, leases.yield_task, self.holders[name], self.now_ms + 60, "later")

    @rule(name=names, action_id=action_ids)
    def prepare_and_dispatch(self, name: str, action_id: str) -> None:
        approval = None
        if action_id == "gated":
            approval = actions.ApprovalRequest(f"approval-{name}", "ann", self.now_ms + 300)
        request = actions.ActionRequest(action_id, "fixture@1", "inbox", CanonicalJson("1"), approval)
        self.run(name, actions.prepare, self.holders[name], request)
        self.run(name, actions.begin_dispatch, self.holders[name], action_id, "d", "fixture@1")

    @rule(name=names, action_id=action_ids, lost=st.booleans())
    def settle(self, name: str, action_id: str, lost: bool) -> None:
        if lost:
            self.run(name, actions.mark_unknown, self.holders[name], action_id)
        else:
            self.run(name, actions.confirm, self.holders[name], action_id, "result")

    @rule(name=names, action_id=action_ids, finding=st.sampled_from(Finding))
    def reconcile(self, name: str, action_id: str, finding: Finding) -> None:
        record = self.both(lambda store: store.get(key(name)))
        if record is None or action_id not in record.actions:
            return
        result = "result" if finding is Finding.CONFIRMED else None
        evidence = Evidence(finding, f"evidence-{self.now_ms}", result)
        bound = record.actions[action_id].prepared_hash
        self.run(name, reconcile, self.holders[name], action_id, bound, evidence)

    @rule(name=names, approved=st.booleans())
    def decide(self, name: str, approved: bool) -> None:
        record = self.both(lambda store: store.get(key(name)))
        if record is not None and "gated" in record.actions:
            bound = record.actions["gated"].prepared_hash
            self.run(name, decide, Verdict(f"approval-{name}", "ann", bound, approved, "note"))

    @rule(
        name=names,
        event_id=st.sampled_from(["e1", "e2"]),
        data=st.sampled_from(["1", "2", '"' + "é" * 60 + '"']),
    )
    def append(self, name: str, event_id: str, data: str) -> None:
        draft = EventDraft(event_id, "note", CanonicalJson(data))
        self.both(lambda store: store.append(key(name), self.holders[name], draft))

    @rule(name=names)
    def artifact(self, name: str) -> None:
        content = ArtifactContent("out", DIGEST, 1, "text/plain", 50)
        self.run(name, put_artifact, self.holders[name], content)

    @rule(name=names, value=st.sampled_from(['"é😀"', "null"]))
    def extension(self, name: str, value: str) -> None:
        self.run(name, update_extension, "slot", CanonicalJson(value))

    @rule(name=names, how=st.sampled_from(["complete", "fail", "cancel", "acknowledge"]))
    def end(self, name: str, how: str) -> None:
        holder = self.holders[name]
        commands: dict[str, Callable[[], object]] = {
            "complete": partial(self.run, name, outcomes.complete, holder, "result"),
            "fail": partial(self.run, name, outcomes.fail, holder, "why"),
            "cancel": partial(self.run, name, outcomes.cancel, "why"),
            "acknowledge": partial(self.run, name, outcomes.acknowledge_cancellation, holder),
        }
        commands[how]()

    @rule(limit=st.integers(1, 5))
    def trim(self, limit: int) -> None:
        self.both(lambda store: store.trim_events(limit))

    @rule()
    def sweep(self) -> None:
        for due in sorted(self.loop.run_until_complete(self.memory.due(10)), key=lambda item: item.task_id):
            self.run(due.task_id, lapse)

    @rule(name=names)
    def purge(self, name: str) -> None:
        self.both(lambda store: store.purge([key(name)], self.now_ms - 1_000))

    @invariant()
    def the_stores_agree(self) -> None:
        assert self.heard[0] == self.heard[1]
        for name in NAMES:
            self.ask("get", key(name))
            self.ask("events", key(name), 0, 10)
            self.ask("events", key(name), 6, 2)
            self.ask("task_of_approval", TENANT, f"approval-{name}")
        for queue in Queue:
            for drivers in (None, frozenset({DRIVER, Driver("x", 1)})):
                self.ask("claimable", ClaimableQuery(TENANT, drivers, queue))
                self.ask("next_claimable_ms", ClaimableQuery(TENANT, drivers, queue))
            self.ask("list_tasks", TaskQuery(TENANT, queue=queue), None, 10)
        ended = frozenset({TaskState.CANCELED, TaskState.COMPLETED})
        self.ask("list_tasks", TaskQuery(TENANT, states=ended), None, 10)
        self.ask("purgeable", TENANT, self.now_ms, 10, frozenset({TaskState.CANCELED}))
        self.ask("next_due_ms")
        self.ask("pending_approvals", TENANT, "ann", None, 10)
        self.ask("unknown_actions", TENANT, None, 10)
        self.ask_for_changes()
        self.ask("counts")
        self.ask("backlog", TENANT)
        self.ask("referenced", [blob_key(key(name), "out", DIGEST) for name in NAMES])
        held = self.answers(lambda store: store.held(TENANT, "w1"))
        assert sorted(record.key.task_id for record in held[0]) == sorted(
            record.key.task_id for record in held[1]
        )


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)
