"""What goes by itself: journal entries that are too old, and tasks that have been over for long enough."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from durable_service import process
from durable_service.blobs.base import BlobStore
from durable_service.config import load_settings
from durable_service.core.artifacts import ArtifactContent, put_artifact
from durable_service.core.binding import blob_key
from durable_service.core.outcomes import cancel, fail
from durable_service.core.states import TaskState
from durable_service.purge_policy import parse_purge_policy
from durable_service.retention_rounds import RetentionRounds
from durable_service.store.base import Purged, StoreFault, StoreLimits, StoreUnavailable
from durable_service.store.contract.scene import TENANT, Scene, key
from service_common.clocks import ManualClock
from service_common.metrics import Metrics
from tests.durable_service.durable_fixture import START_MS, DurableUnderTest, serving
from tests.harness.waiting import eventually

DAY_MS = 86_400_000
DIGEST = "sha256:" + "0" * 64
ENDED = ["canceled", "completed", "failed", "stopped"]


class TestPolicy:
    @pytest.mark.parametrize(
        ("text", "days"),
        [
            ("", {}),
            ("30d", dict.fromkeys(ENDED, 30)),
            ("completed=7d,failed=30d", {"completed": 7, "failed": 30}),
            (" completed = 48h , 30d ", {**dict.fromkeys(ENDED, 30), "completed": 2}),
            ("canceled=7d,failed=30d,stopped=30d,", {"canceled": 7, "failed": 30, "stopped": 30}),
        ],
    )
    def test_what_can_be_written(self, text: str, days: Mapping[str, int]) -> None:
        assert parse_purge_policy(text) == {TaskState(name): age * DAY_MS for name, age in days.items()}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("30", "'30' is not a duration"),
            ("completed=", "'' is not a duration"),
            ("running=7d", "'running' is not how a task ends: write canceled, completed, failed, stopped"),
            ("7d,30d", "it says twice how long every task is kept"),
            ("failed=7d,failed=30d", "it says twice how long failed is kept"),
        ],
    )
    def test_what_cannot(self, text: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            parse_purge_policy(text)


class TestSettings:
    def test_they_reach_the_store_and_the_server(self) -> None:
        settings = load_settings(
            {
                "principals": "p",
                "purge": "completed=7d,30d",
                "events_per_task": 10,
                "event_bytes_per_task": "100000",
                "event_age_seconds": 86_400,
            }
        )
        assert process._limits(settings) == StoreLimits(2_000_000, 10, 100_000, DAY_MS)
        ages = {TaskState.COMPLETED: 7, TaskState.FAILED: 30, TaskState.CANCELED: 30, TaskState.STOPPED: 30}
        assert process._options(settings).purge_after_ms == {
            state: days * DAY_MS for state, days in ages.items()
        }

    def test_without_them_nothing_goes_by_age(self) -> None:
        settings = load_settings({"principals": "p"})
        assert process._limits(settings) == StoreLimits(2_000_000, 256, None, None)
        assert process._options(settings).purge_after_ms == {}


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DurableUnderTest]:
    database = tmp_path / "tasks.db" if request.param == "sqlite" else None
    limits = StoreLimits(event_age_ms=30_000)
    policy = {TaskState.COMPLETED: 20_000, TaskState.CANCELED: 1_000, TaskState.FAILED: 25_000}
    async with serving(
        database=database, limits=limits, retention_ms=10_000, purge_after_ms=policy
    ) as running:
        yield running


async def left(service: DurableUnderTest) -> set[str]:
    listed = await service.call("operator", "ListTasks", page_size=100)
    return {task.task_id for task in listed.tasks}


class TestPurge:
    async def test_tasks_go_by_how_they_ended(self, service: DurableUnderTest) -> None:
        for name in ("completed", "failed", "canceled", "running"):
            await service.create(name)
        for name, method, fields in (
            ("completed", "CompleteTask", {}),
            ("failed", "FailTask", {"failure": "why"}),
        ):
            await service.call("worker", method, lease=await service.claim(name), **fields)
        await service.call("alice", "CancelTask", task_id="canceled")

        # One second for canceled ones is less than no task is purged before.
        await service.pass_time(9_999)
        await service.server._retention.round()
        assert await left(service) == {"completed", "failed", "canceled", "running"}
        await service.pass_time(1)
        await service.server._retention.round()
        assert await left(service) == {"completed", "failed", "running"}
        await service.pass_time(10_000)
        await service.server._retention.round()
        assert await left(service) == {"failed", "running"}
        await service.pass_time(5_000)
        await service.server._retention.round()
        assert await left(service) == {"running"}

        again = await service.party("alice").refused("CreateTask", task_id="failed")
        assert again.reason == "FIELD_INVALID"
        metrics = service.server.metrics
        assert [metrics.value("durable_tasks_purged_total", state=state) for state in ENDED] == [1, 1, 1, 0]

    async def test_of_every_tenant_and_without_a_call(self, service: DurableUnderTest) -> None:
        for caller in ("alice", "eve"):
            await service.create("ended", caller=caller)
            await service.call(caller, "CancelTask", task_id="ended")
        await service.pass_time(10_000)

        async def nothing_is_left() -> bool:
            # A round comes within 72 s; time passes only here.
            await service.pass_time(12_000)
            return sum(count.tasks for count in await service.store.counts()) == 0

        await eventually(nothing_is_left)


class TestJournals:
    async def test_readers_are_told_of_the_gap(self, service: DurableUnderTest) -> None:
        await service.create()
        await service.pass_time(30_000)
        await service.server._retention.round()

        refusal = await service.party("alice").refused("ListEvents", task_id="task")
        assert refusal.reason == "EVENT_GAP"
        assert (refusal.metadata["earliest"], refusal.metadata["latest"]) == ("2", "1")
        page = await service.call("alice", "ListEvents", task_id="task", after_sequence=1)
        assert (len(page.events), page.earliest_sequence, page.latest_sequence) == (0, 2, 1)
        assert service.server.metrics.value("durable_journal_entries_dropped_total") == 1

        async with service.party("alice").watch("WatchEvents", task_id="task", follow=True) as frames:
            gap = (await frames.next()).gap
            await service.claim()
            batch = (await frames.next()).batch
        assert (gap.after_sequence, gap.earliest_sequence, gap.latest_sequence) == (0, 2, 1)
        assert batch.events[0].sequence == 2


class FailingBlobs:
    """Bytes whose removal fails as often as a test says."""

    def __init__(self, blobs: BlobStore, failures: int) -> None:
        self._blobs = blobs
        self.failures = failures

    async def delete(self, key: str) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable(StoreFault.UNREACHABLE, "away")
        await self._blobs.delete(key)


class TestRounds:
    @pytest.fixture
    async def service(self) -> AsyncIterator[DurableUnderTest]:
        async with serving() as running:
            yield running

    def rounds(self, service: DurableUnderTest, blobs: Any = None) -> RetentionRounds:
        return RetentionRounds(
            service.store,
            blobs or service.blobs,
            ManualClock(START_MS),
            Metrics(),
            purge_after_ms=dict.fromkeys([TaskState.CANCELED, TaskState.FAILED], 0),
            retention_ms=0,
        )

    async def ended_with_bytes(self, service: DurableUnderTest, *names: str) -> list[str]:
        """Tasks that have ended, each with an artifact; the keys of their bytes."""
        scene, keys = Scene(service.store), []
        for name in names:
            await scene.create(name)
            holder = await scene.claim(name)
            content = ArtifactContent("out", DIGEST, 5, "text/plain", 1_000)
            await scene.run(name, put_artifact, holder, content)
            keys.append(blob_key(key(name), "out", DIGEST))
            await service.blobs.put(keys[-1], b"bytes")
            await scene.run(name, fail, holder, "why")
        return keys

    async def test_bytes_go_with_their_task(self, service: DurableUnderTest) -> None:
        keys = await self.ended_with_bytes(service, "a", "b")
        await self.rounds(service).round()
        assert await service.store.purgeable(TENANT, START_MS + 1, 10) == []
        assert [await service.blobs.get(each) for each in keys] == [None, None]

    async def test_more_than_a_batch(self, service: DurableUnderTest) -> None:
        scene = Scene(service.store)
        for number in range(250):
            await scene.create(f"task-{number}")
            await scene.run(f"task-{number}", cancel, "")
        await self.rounds(service).round()
        assert [each.tasks for each in await service.store.counts()] == []

    async def test_what_fails_is_made_good_later(self, service: DurableUnderTest) -> None:
        keys = await self.ended_with_bytes(service, "a", "b")
        rounds = self.rounds(service, FailingBlobs(service.blobs, 1))
        with pytest.raises(StoreUnavailable):
            await rounds.round()
        # The tasks are gone; the bytes that stayed have no reference and are collected.
        await rounds.round()
        assert await service.store.referenced(keys) == frozenset()

    async def test_tasks_that_another_replica_purged(
        self, service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.ended_with_bytes(service, "a")
        asked: list[object] = []

        async def nothing(*details: object) -> list[Purged]:
            asked.append(details)
            return []

        monkeypatch.setattr(service.store, "purge", nothing)
        await self.rounds(service).round()
        assert len(asked) == 1
