"""Streams of answers: pushed when something happens, resumed where they were left."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from durable_service.planes import watches
from durable_service.principals import Principals
from sealwork.durable.v1 import record_service_pb2, task_pb2, task_service_pb2
from tests.durable_service.durable_fixture import PRINCIPALS, DurableUnderTest, serving
from tests.durable_service.planes.every_method import Scene, begin, prepare
from tests.durable_service.raw_client import Frames, Refusal
from tests.harness.waiting import eventually

QUEUED = task_pb2.TaskFilter(states=[task_pb2.TASK_STATE_QUEUED])


async def end_of(frames: Frames) -> Refusal:
    """The status that a stream ends with."""
    try:
        async for _ in frames:
            pass
    except grpc.aio.AioRpcError as error:
        return Refusal.of_error(error)
    raise AssertionError("the stream ended in order")


def names(frame: Any) -> list[str]:
    return [task.task_id for task in frame.batch.tasks]


class TestTasks:
    async def test_it_begins_now_and_tells_of_changes(self, service: DurableUnderTest) -> None:
        await service.create("old")
        async with service.party("alice").watch("WatchTasks") as frames:
            assert (await frames.next()).HasField("bookmark")
            await service.create("new")
            created = (await frames.next()).batch.tasks
            await service.claim("old")
            claimed = (await frames.next()).batch.tasks

        assert [(task.task_id, task.state) for task in created] == [("new", task_pb2.TASK_STATE_QUEUED)]
        assert [(task.task_id, task.state) for task in claimed] == [("old", task_pb2.TASK_STATE_RUNNING)]
        assert not created[0].HasField("definition")

    async def test_others_hear_nothing(self, service: DurableUnderTest) -> None:
        async with (
            service.party("bob").watch("WatchTasks") as frames,
            service.party("eve").watch("WatchTasks") as evil,
        ):
            await frames.next()
            await evil.next()
            await service.create("of-alice")
            await service.create("of-bob", caller="bob")
            await service.create("of-eve", caller="eve")

            assert names(await frames.next()) == ["of-bob"]
            assert names(await evil.next()) == ["of-eve"]

    async def test_from_the_token_of_a_list(self, service: DurableUnderTest) -> None:
        await service.create("listed")
        token = (await service.call("alice", "ListTasks")).resume_token
        await service.create("missed")
        async with service.party("alice").watch("WatchTasks", resume_token=token) as frames:
            assert names(await frames.next()) == ["missed"]

    async def test_resuming_misses_nothing(self, service: DurableUnderTest) -> None:
        async with service.party("alice").watch("WatchTasks") as frames:
            await frames.next()
            await service.create("one")
            token = (await frames.next()).resume_token
        await service.create("two")
        await service.create("three")
        async with service.party("alice").watch("WatchTasks", resume_token=token) as frames:
            assert names(await frames.next()) == ["two", "three"]

    async def test_what_leaves_the_filter_is_told_of_once_more(self, service: DurableUnderTest) -> None:
        await service.create()
        async with service.party("alice").watch("WatchTasks", filter=QUEUED) as frames:
            await frames.next()
            lease = await service.claim()
            left = await frames.next()
            await service.call("worker", "CompleteTask", lease=lease)
            await service.create("another")
            following = await frames.next()

        assert names(left) == ["task"]
        assert left.batch.tasks[0].state == task_pb2.TASK_STATE_RUNNING
        assert names(following) == ["another"]

    async def test_what_left_the_filter_meanwhile_is_told_of(self, service: DurableUnderTest) -> None:
        await service.create()
        token = (await service.call("alice", "ListTasks", filter=QUEUED)).resume_token
        await service.claim()
        async with service.party("alice").watch("WatchTasks", filter=QUEUED, resume_token=token) as frames:
            assert names(await frames.next()) == ["task"]

    async def test_signs_of_life(self, service: DurableUnderTest) -> None:
        request = task_service_pb2.WatchTasksRequest(bookmark_interval=Duration(seconds=2))
        async with service.party("alice").watch("WatchTasks", request) as frames:
            await frames.next()
            await service.pass_time(2_000)
            assert (await frames.next()).HasField("bookmark")

    async def test_tokens_that_are_refused(self, service: DurableUnderTest) -> None:
        alice = service.party("alice")
        token = (await service.call("alice", "ListTasks")).resume_token
        other = await alice.refused("WatchTasks", resume_token=token, filter=QUEUED)
        async with serving() as restarted:
            lost = await restarted.party("alice").refused("WatchTasks", resume_token=token)

        assert other.reason == "PAGE_TOKEN_INVALID"
        # The store keeps nothing over a restart, so positions of before mean nothing.
        assert (lost.code, lost.reason) == (grpc.StatusCode.OUT_OF_RANGE, "RESUME_TOKEN_EXPIRED")


class TestEvents:
    async def test_the_journal_to_its_end(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        async with service.party("alice").watch("WatchEvents", task_id="task", follow=True) as frames:
            begun = [event.type for event in (await frames.next()).batch.events]
            await service.call("worker", "CompleteTask", lease=lease)
            rest = [event.type async for frame in frames for event in frame.batch.events]

        assert begun == ["task.created", "task.state", "lease.granted"]
        assert rest == ["task.state"]

    async def test_without_following_it_ends_with_the_newest(self, service: DurableUnderTest) -> None:
        await service.running()
        async with service.party("alice").watch("WatchEvents", task_id="task", after_sequence=1) as frames:
            sequences = [event.sequence async for frame in frames for event in frame.batch.events]

        assert sequences == [2, 3]

    async def test_types(self, service: DurableUnderTest) -> None:
        await service.running()
        async with service.party("alice").watch(
            "WatchEvents", task_id="task", types=["lease.granted"], follow=True
        ) as frames:
            assert [event.sequence for event in (await frames.next()).batch.events] == [3]
            await service.pass_time(15_000)
            assert (await frames.next()).bookmark.sequence == 3

    async def test_what_was_trimmed_is_told_as_a_gap(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        for number in range(256):
            await service.call(
                "worker", "AppendEvent", lease=lease, event_id=f"e{number}", type="note", data=b"1"
            )
        async with service.party("alice").watch("WatchEvents", task_id="task") as frames:
            gap = (await frames.next()).gap
            first = (await frames.next()).batch.events[0]

        assert (gap.after_sequence, gap.earliest_sequence, gap.latest_sequence) == (0, 4, 259)
        assert first.sequence == 4

    async def test_a_cursor_ahead_of_everything(self, service: DurableUnderTest) -> None:
        await service.running()
        refusal = await service.party("alice").refused("WatchEvents", task_id="task", after_sequence=99)

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENT_GAP")
        assert refusal.metadata == {"earliest": "1", "latest": "3"}


class TestApprovals:
    async def test_what_pends_and_what_changes(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        async with service.party("carol").watch("WatchApprovals") as frames:
            pending = (await frames.next()).batch
            await service.call("worker", "PrepareAction", prepare(scene.lease, "more", service.clock))
            added = (await frames.next()).batch
            await service.call("carol", "DecideApproval", scene.request("DecideApproval"))
            decided = (await frames.next()).batch
            await service.call("worker", "BeginDispatch", begin(scene.lease, "asked"))
            used = (await frames.next()).batch

        assert ([each.approval_id for each in pending.approvals], pending.synced) == (
            [scene.approval_id],
            True,
        )
        assert [each.action_id for each in added.approvals] == ["more"]
        assert [(each.approval_id, each.state) for each in decided.approvals] == [(scene.approval_id, 2)]
        assert [(each.approval_id, each.state) for each in used.approvals] == [(scene.approval_id, 4)]

    async def test_of_others_nothing_is_told(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        async with service.party("dave").watch("WatchApprovals") as frames:
            assert not (await frames.next()).batch.approvals
            await service.call("carol", "DecideApproval", scene.request("DecideApproval"))
            await service.pass_time(15_000)
            assert (await frames.next()).HasField("bookmark")

    async def test_a_task_that_is_cancelled_makes_them_void(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        async with service.party("carol").watch("WatchApprovals") as frames:
            await frames.next()
            await service.call("alice", "CancelTask", task_id="task")
            (void,) = (await frames.next()).batch.approvals

        assert (void.approval_id, void.state) == (scene.approval_id, 6)


class TestCounts:
    async def test_at_once_and_every_period(self, service: DurableUnderTest) -> None:
        async with service.party("operator").watch("Watch") as frames:
            assert not (await frames.next()).stats.tasks
            await service.create()
            await service.pass_time(1_000)
            assert (await frames.next()).stats.claimable_tasks == 1


class TestTheEnd:
    @pytest.mark.parametrize(
        ("caller", "name", "fields"),
        [
            ("alice", "WatchTasks", {}),
            ("alice", "WatchEvents", {"task_id": "task", "follow": True}),
            ("carol", "WatchApprovals", {}),
            ("operator", "Watch", {}),
        ],
    )
    async def test_a_principal_that_is_cut_off(
        self, service: DurableUnderTest, caller: str, name: str, fields: dict[str, Any]
    ) -> None:
        await service.create()
        async with service.party(caller).watch(name, **fields) as frames:
            await frames.next()
            others = [each for each in PRINCIPALS.by_id.values() if each.id != caller]
            service.source.replace(Principals.of(others))

            assert (await end_of(frames)).reason == "PRINCIPAL_REVOKED"

    @pytest.mark.parametrize(
        ("caller", "name", "fields"),
        [
            ("alice", "WatchTasks", {}),
            ("alice", "WatchEvents", {"task_id": "task", "follow": True}),
            ("carol", "WatchApprovals", {}),
        ],
    )
    async def test_a_shutdown_asks_first(
        self, service: DurableUnderTest, caller: str, name: str, fields: dict[str, Any]
    ) -> None:
        await service.create()
        async with service.party(caller).watch(name, **fields) as frames:
            await frames.next()
            draining = asyncio.create_task(service.server.watches.drain())
            assert (await frames.next()).HasField("drain_notice")
            await service.pass_time(watches.DRAIN_MS)
            assert (await end_of(frames)).reason == "SERVER_DRAINING"
        await draining

    async def test_no_more_than_so_many(
        self, service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watches, "MOST_A_PRINCIPAL", 1)
        async with service.party("alice").watch("WatchTasks") as frames:
            await frames.next()
            refusal = await service.party("alice").refused("WatchTasks")
        await eventually(lambda: len(service.server.watches) == 0)

        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "TOO_MANY_SESSIONS",
        )


async def test_a_watch_ends_with_the_task_also_when_it_is_told_nothing() -> None:
    async with serving() as service:
        await service.create()
        request = record_service_pb2.WatchEventsRequest(task_id="task", follow=True, types=["none"])
        async with service.party("alice").watch("WatchEvents", request) as frames:
            await frames.next()
            lease = await service.claim()
            await service.call("worker", "CompleteTask", lease=lease)
            assert [frame async for frame in frames if frame.HasField("batch")] == []
