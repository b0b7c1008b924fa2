"""Creation, reading and single atomic updates."""
# ruff: noqa: S101, ARG001

import asyncio
from dataclasses import replace
from typing import NoReturn

import pytest

from durable_service.core import claims, outcomes
from durable_service.core.artifacts import ArtifactContent, put_artifact
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Budget
from durable_service.core.errors import Reason
from durable_service.core.extensions import update_extension
from durable_service.core.leases import renew
from durable_service.core.model import Holder, TaskRecord
from durable_service.core.states import TaskState
from durable_service.core.step import Decision, Step
from durable_service.store.contract.scene import LEASE_MS, Scene, StoreHarness, creation, key, refusal


class UpdatingCases:
    """What one write is."""

    async def test_a_task_is_created_once(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        first = await store.create(creation("a"))
        await store_harness.advance(5)
        again = await store.create(creation("a"))
        assert (first.answer.created, again.answer.created) == (True, False)
        assert again.record == first.record == await store.get(key("a"))
        assert first.record.created_at_ms == first.record.updated_at_ms
        assert await refusal(store.create(creation("a", budget=Budget(7)))) is Reason.DEFINITION_MISMATCH

    async def test_a_task_is_found_in_its_tenant_alone(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        await scene.create("a", tenant="other", session="elsewhere")
        assert await store_harness.store.get(key("b")) is None
        assert await store_harness.store.get(key("a", "third")) is None
        assert (await scene.record("a", "other")).definition.identity.session_id == "elsewhere"

    async def test_what_is_written_is_read(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        scene = Scene(store)
        await scene.create("a", budget=Budget(2, 5, 6), not_before_ms=1, finish_deadline_ms=9_000_000_000_000)
        holder = await scene.claim("a")
        await scene.prepare("a", holder, "plain")
        await scene.prepare("a", holder, "gated", approver="réviseur 😀")
        await scene.dispatch("a", holder, "plain")
        content = ArtifactContent("out", "sha256:" + "0" * 64, 1, "text/plain", 10)
        await scene.run("a", put_artifact, holder, content)
        decision = await store.update(
            key("a"), lambda record, now: update_extension(record, "slot", CanonicalJson('{"k":[1]}'), now)
        )
        assert await store.get(key("a")) == decision.record

    async def test_missing_comes_before_the_guard(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        call = store.update(key("a"), lambda record, now: outcomes.cancel(record, "", now), Holder("w", 1))
        assert await refusal(call) is Reason.TASK_NOT_FOUND

    async def test_a_guard_is_checked(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")

        def cancel(record: TaskRecord, now_ms: int) -> Decision[outcomes.CancelAnswer]:
            return outcomes.cancel(record, "", now_ms)

        for stranger in (Holder("worker-2", 1), Holder("worker-1", 2), Holder("worker-1", 0)):
            assert await refusal(scene.store.update(key("a"), cancel, stranger)) is Reason.LEASE_LOST
        await store_harness.advance(LEASE_MS)
        assert await refusal(scene.store.update(key("a"), cancel, holder)) is Reason.LEASE_LOST
        assert (await scene.record("a")).state is TaskState.RUNNING

    async def test_what_is_refused_is_not_written(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        before = await scene.record("a")
        changes = scene.watch()
        assert await refusal(scene.run("a", outcomes.acknowledge_cancellation, holder)) is (
            Reason.CANCEL_NOT_REQUESTED
        )
        assert await scene.record("a") == before
        assert changes == []

    async def test_a_command_that_breaks_leaves_no_trace(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        before = await scene.create("a")

        def broken(record: TaskRecord, now_ms: int) -> NoReturn:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await scene.store.update(key("a"), broken)
        assert await scene.record("a") == before
        await scene.claim("a")

    async def test_a_forged_record_is_refused(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        before = await scene.create("a")

        def forge(record: TaskRecord, now_ms: int) -> Decision[None]:
            return Decision(replace(record, state=TaskState.COMPLETED), None)

        def rename(record: TaskRecord, now_ms: int) -> Decision[None]:
            return Decision(replace(record, definition=creation("b").definition), None)

        assert await refusal(scene.store.update(key("a"), forge)) is Reason.ILLEGAL_TRANSITION
        assert await refusal(scene.store.update(key("a"), rename)) is Reason.INVARIANT
        assert await scene.record("a") == before

    async def test_no_update_is_lost(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")

        def increment(record: TaskRecord, now_ms: int) -> Decision[int]:
            present = record.extensions.get("counter")
            count = 0 if present is None else int(present.value)
            decision = update_extension(record, "counter", CanonicalJson(str(count + 1)), now_ms)
            return Decision(decision.record, count, decision.events)

        answers = await asyncio.gather(*(scene.store.update(key("a"), increment) for _ in range(40)))
        assert sorted(decision.answer for decision in answers) == list(range(40))
        record = await scene.record("a")
        assert (record.extensions["counter"].value, record.revision) == ("40", 40)

    async def test_one_of_many_claims(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")

        async def claim(number: int) -> claims.ClaimAnswer:
            request = claims.ClaimRequest(f"worker-{number}", f"claim-{number}", LEASE_MS)
            update = scene.store.update(key("a"), lambda record, now: claims.claim(record, request, now))
            return (await update).answer

        answers = await asyncio.gather(*(claim(number) for number in range(20)))
        assert sum(isinstance(answer, claims.Claimed) for answer in answers) == 1
        assert (await scene.record("a")).fence == 1

    async def test_a_renewal_leaves_the_revision(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        before = await scene.record("a")
        await store_harness.advance(4_000)
        lease = await scene.run("a", renew, holder, LEASE_MS)
        record = await scene.record("a")
        assert record.lease == lease
        assert lease.expires_at_ms == before.created_at_ms + 4_000 + LEASE_MS
        assert (record.revision, record.updated_at_ms) == (before.revision, before.updated_at_ms)

    async def test_a_repeat_writes_nothing(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        holder = await scene.claim("a")
        await scene.release("a", holder)
        changes = scene.watch()
        await scene.release("a", holder)
        assert changes == []

    async def test_a_task_that_is_too_large(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        large = CanonicalJson('"' + "x" * 100_000 + '"')
        assert await refusal(scene.run("a", lambda record, now: _fill(record, large, now))) is (
            Reason.TASK_TOO_LARGE
        )
        holder = await scene.claim("a")
        await scene.complete("a", holder)

    async def test_listeners_hear_every_change_in_order(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        changes = scene.watch()
        await scene.create("a")
        holder = await scene.claim("a")
        await scene.complete("a", holder)
        assert [change.after.revision for change in changes if change.after is not None] == [0, 1, 2]
        assert [change.before is None for change in changes] == [True, False, False]
        assert [event.type for change in changes for event in change.events] == [
            "task.created",
            "task.state",
            "lease.granted",
            "task.state",
        ]
        assert changes[1].before == changes[0].after

    async def test_a_listener_leaves(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        heard: list[object] = []
        leave = scene.store.listen(heard.append)
        await scene.create("a")
        leave()
        leave()
        await scene.create("b")
        assert len(heard) == 1

    async def test_a_listener_that_breaks_harms_nobody(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        reported: list[dict[str, object]] = []

        def broken(change: object) -> NoReturn:
            raise ZeroDivisionError

        scene.store.listen(broken)
        changes = scene.watch()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        try:
            await scene.create("a")
        finally:
            loop.set_exception_handler(None)
        assert (len(reported), len(changes)) == (1, 1)

    async def test_a_bare_change_is_a_revision(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.create("a")
        await store_harness.advance(7)
        decision = await scene.store.update(key("a"), lambda record, now: Step(record, now).decision(None))
        assert decision.record.revision == 1
        assert decision.record.updated_at_ms == decision.record.created_at_ms + 7


def _fill(record: TaskRecord, value: CanonicalJson, now_ms: int) -> Decision[object]:
    decision = update_extension(record, "slot", value, now_ms, limit_bytes=100_000)
    return Decision(decision.record, decision.answer, decision.events)
