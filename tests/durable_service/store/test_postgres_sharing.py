"""Several stores on one PostgreSQL database, as several servers have them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.claims import Claimed, ClaimRequest, claim
from durable_service.core.errors import DomainError, Reason
from durable_service.core.extensions import update_extension
from durable_service.core.leases import renew
from durable_service.core.model import TaskRecord
from durable_service.core.outcomes import cancel
from durable_service.core.step import Decision
from durable_service.store import postgres_contention
from durable_service.store.base import ClaimableQuery, TaskChange
from durable_service.store.contract.scene import DRIVER, TENANT, Scene, creation, key, refusal
from durable_service.store.postgres import PostgresTaskStore
from tests.durable_service.store.postgres_fixture import PostgresServer, fresh_database, postgres_server

__all__ = ["postgres_server"]

pytestmark = pytest.mark.process

OURS = ClaimableQuery(TENANT, frozenset({DRIVER}), limit=3)


class Heard:
    """What one store told, to be waited for."""

    def __init__(self, store: PostgresTaskStore) -> None:
        self.changes: list[TaskChange] = []
        self._news = asyncio.Event()
        store.listen(self._note)

    def _note(self, change: TaskChange) -> None:
        self.changes.append(change)
        self._news.set()

    async def revision(self, task_id: str, revision: int) -> TaskChange:
        """The change that led to this revision of a task, or beyond."""
        async with asyncio.timeout(30):
            while True:
                self._news.clear()
                for change in self.changes:
                    after = change.after
                    if after is not None and after.key.task_id == task_id and after.revision >= revision:
                        return change
                await self._news.wait()


@asynccontextmanager
async def opened(url: str, count: int = 2, size: int = 4) -> AsyncIterator[list[PostgresTaskStore]]:
    stores = [await PostgresTaskStore.open(url, size=size) for _ in range(count)]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


@pytest.mark.guarantee("postgresql", "However many services want a task, one of them has it")
async def test_each_task_is_claimed_once(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server)) as stores:
        await Scene(stores[0]).create(*(f"task-{number}" for number in range(30)))
        won: list[tuple[str, int]] = []

        async def work(store: PostgresTaskStore, worker: str) -> None:
            count = 0
            while found := await store.claimable(OURS):
                for candidate in found:
                    count += 1
                    request = ClaimRequest(worker, f"{worker}-{count}", 3_600_000)

                    def take(
                        record: TaskRecord, now_ms: int, request: ClaimRequest = request
                    ) -> Decision[object]:
                        return claim(record, request, now_ms)

                    answer = (await store.update(candidate.key, take)).answer
                    if isinstance(answer, Claimed):
                        won.append((candidate.key.task_id, answer.lease.fence))

        await asyncio.gather(*(work(store, f"w{n}-{m}") for n, store in enumerate(stores) for m in range(3)))
        assert sorted(won) == sorted((f"task-{number}", 1) for number in range(30))


@pytest.mark.guarantee(
    "postgresql", "A claim that two services answer at the same moment is granted one task"
)
async def test_a_claim_that_two_processes_answer_is_granted_one_task(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server)) as stores:
        names = [(f"left-{number}", f"right-{number}") for number in range(10)]
        await Scene(stores[0]).create(*(name for pair in names for name in pair))

        async def grant(store: PostgresTaskStore, task_id: str, claim_id: str) -> str:
            request = ClaimRequest("worker", claim_id, 3_600_000)
            try:
                await store.update(key(task_id), lambda record, now_ms: claim(record, request, now_ms))
            except DomainError as error:
                return error.reason
            return task_id

        for number, pair in enumerate(names):
            claim_id = f"claim-{number}"
            answers = await asyncio.gather(*map(grant, stores, pair, [claim_id] * 2))
            (won,) = set(answers) - {Reason.REQUEST_ID_REUSED}
            (lost,) = set(pair) - {won}
            assert await stores[0].granted(TENANT, "worker", claim_id) == key(won)
            # Nothing of the other one is written, and another claim has it.
            assert (await Scene(stores[0]).record(lost)).revision == 0
            assert await grant(stores[0], lost, f"next-{number}") == lost


@pytest.mark.guarantee("postgresql", "No change that several services make to one task is lost")
async def test_no_update_of_several_processes_is_lost(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server), count=3) as stores:
        await Scene(stores[0]).create("a")

        def increment(record: TaskRecord, now_ms: int) -> Decision[int]:
            present = record.extensions.get("counter")
            count = 0 if present is None else int(present.value)
            decision = update_extension(record, "counter", CanonicalJson(str(count + 1)), now_ms)
            return Decision(decision.record, count, decision.events)

        updates = [store.update(key("a"), increment) for store in stores for _ in range(10)]
        answers = await asyncio.gather(*updates)
        assert sorted(decision.answer for decision in answers) == list(range(30))
        assert (await Scene(stores[1]).record("a")).revision == 30


async def test_a_renewal_and_a_change_do_not_undo_each_other(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server)) as (ours, other):
        scene = Scene(ours)
        await scene.create("a")
        holder = await scene.claim("a")
        crossed = False

        def renew_late(record: TaskRecord, now_ms: int) -> Decision[object]:
            return renew(record, holder, 3_600_000, now_ms)

        original = ours._database.write

        async def write(statement: object) -> bool:
            # Another process changes the task between our look and our write.
            nonlocal crossed
            if not crossed:
                crossed = True
                await Scene(other).run("a", update_extension, "slot", CanonicalJson("1"))
            return await original(statement)  # type: ignore[arg-type]

        ours._database.write = write  # type: ignore[method-assign,assignment]
        await ours.update(key("a"), renew_late)
        record = await scene.record("a")
        assert (record.extensions["slot"].value, record.revision) == ("1", 2)
        assert record.lease is not None
        assert record.lease.expires_at_ms > await ours.now_ms() + 3_000_000


async def test_a_task_that_is_changed_all_the_time_is_given_up(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_service.store.postgres_contention._LONGEST_WAIT_SECONDS", 0.001)
    async with opened(fresh_database(postgres_server)) as (ours, other):
        await Scene(ours).create("a")
        tries = 0
        original = ours._database.write

        async def write(statement: object) -> bool:
            nonlocal tries
            tries += 1
            await Scene(other).run("a", update_extension, "slot", CanonicalJson(str(tries)))
            return await original(statement)  # type: ignore[arg-type]

        ours._database.write = write  # type: ignore[method-assign,assignment]
        assert await refusal(Scene(ours).run("a", cancel, "")) is Reason.CONTENTION
        assert tries == postgres_contention.TRIES == 24


async def test_a_guard_holds_at_the_moment_of_the_write(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server)) as (ours, _):
        scene = Scene(ours)
        await scene.create("a")
        holder = await scene.claim("a", lease_ms=3_600_000)
        original = ours._database.write

        async def write(statement: object) -> bool:
            # Two hours pass between the look and the write, for the database alone.
            await ours._database.ask("UPDATE durable_clock SET ahead_ms = 7200000 RETURNING 1")
            return await original(statement)  # type: ignore[arg-type]

        ours._database.write = write  # type: ignore[method-assign,assignment]

        def end(record: TaskRecord, now_ms: int) -> Decision[object]:
            return cancel(record, "", now_ms)

        assert await refusal(ours.update(key("a"), end, holder)) is Reason.LEASE_LOST
        assert (await scene.record("a")).revision == 1


async def test_changes_of_others_are_told(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server)) as (ours, other):
        heard, scene = Heard(ours), Scene(other)
        async with asyncio.timeout(30):
            await ours._news.listening.wait()
        await scene.create("a")
        created = await heard.revision("a", 0)
        assert (created.remote, created.before) == (True, None)
        await scene.claim("a")
        claimed = await heard.revision("a", 1)
        assert claimed.before is not None
        assert (claimed.remote, claimed.before.revision) == (True, 0)
        assert [event.type for event in claimed.events] == ["task.state", "lease.granted"]
        # Our own are told once, as ours.
        await Scene(ours).create("b")
        await Scene(other).create("c")
        await heard.revision("c", 0)
        assert [change.remote for change in heard.changes] == [True, True, False, True]


async def test_changes_are_told_without_a_message(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server)) as (ours, other):
        heard = Heard(ours)
        other._announcer.note = lambda: None  # type: ignore[method-assign]
        await Scene(other).create("a")
        assert (await heard.revision("a", 0)).remote


async def test_positions_wait_for_an_older_transaction(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    async with opened(url) as (ours, other):
        heard = Heard(ours)
        begin = (await ours.changes(TENANT, 0, 0)).latest
        with psycopg.connect(url) as older:
            # It has its number, and ends later than those that come after it.
            older.execute("SELECT pg_current_xact_id()")
            await Scene(other).create("a")
            page = await ours.changes(TENANT, begin, 10)
            assert (page.records, page.latest >= begin) == ((), True)
            # Whoever listens hears of it all the same.
            await heard.revision("a", 0)
            older.commit()
        page = await ours.changes(TENANT, page.latest, 10)
        assert [record.key.task_id for _, record in page.records] == ["a"]
        # Told once, though it is found again below the horizon.
        await Scene(other).create("b")
        await heard.revision("b", 0)
        assert len(heard.changes) == 2


@pytest.mark.guarantee("postgresql", "Whoever follows the changes of several services misses none")
async def test_no_change_is_skipped_while_many_commit(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server), count=2, size=8) as (ours, other):
        done = asyncio.Event()
        seen: set[str] = set()

        async def read() -> None:
            position = 0
            while True:
                last = done.is_set()
                page = await ours.changes(TENANT, position, 7)
                seen.update(record.key.task_id for _, record in page.records)
                position = page.records[-1][0] if page.records else page.latest
                if last and not page.records:
                    return

        reader = asyncio.create_task(read())
        names = [f"task-{number}" for number in range(120)]
        await asyncio.gather(*((ours, other)[n % 2].create(creation(name)) for n, name in enumerate(names)))
        done.set()
        await asyncio.wait_for(reader, 60)
        assert seen == set(names)


async def test_a_write_whose_caller_is_gone_is_told(postgres_server: PostgresServer) -> None:
    async with opened(fresh_database(postgres_server), count=1) as (ours,):
        heard = Heard(ours)
        original, reached, let = ours._database.write, asyncio.Event(), asyncio.Event()

        async def write(statement: object) -> bool:
            reached.set()
            await let.wait()
            return await original(statement)  # type: ignore[arg-type]

        ours._database.write = write  # type: ignore[method-assign,assignment]
        call = asyncio.create_task(ours.create(creation("a")))
        await reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        let.set()
        assert not (await heard.revision("a", 0)).remote


async def test_time_does_not_go_back(postgres_server: PostgresServer) -> None:
    url = fresh_database(postgres_server)
    async with opened(url, count=1) as (ours,):
        before = await ours.now_ms()
        await ours._database.note_now()
        with psycopg.connect(url, autocommit=True) as connection:
            # The clock of the server is set back by an hour, or another server takes over.
            connection.execute(
                "CREATE OR REPLACE FUNCTION durable_wall_ms() RETURNS bigint LANGUAGE sql VOLATILE"
                " RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 3600000"
            )
        assert await ours.now_ms() >= before
        await ours._database.note_now()
        first = await ours.now_ms()
        async with asyncio.timeout(30):
            while await ours.now_ms() <= first:
                pass
    async with opened(url, count=1) as (again,):
        assert first < await again.now_ms() < first + 600_000
