"""What only a store on a server has to show: many connections, large bodies, several stores, its cost."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from relay_service.core.model import (
    Audience,
    Change,
    Direction,
    Disposition,
    JobStub,
    LeaseChanged,
    LeaseEnd,
    NoticeAdded,
    Refusal,
    ReleaseReason,
    Route,
    RoutedJob,
    SizeClass,
    VerdictState,
    WorkAvailable,
)
from relay_service.core.quotas import Quotas
from relay_service.store.base import ClaimRequest, Completed, TooLate
from relay_service.store.contract.scene import (
    OTHER_SITE,
    SITE,
    YEAR_2100_MS,
    Scene,
    device,
    envelope,
    ids,
    reference,
)

from .valkey_fixture import (
    TcpServer,
    Valkey,
    ValkeyHarness,
    ValkeyRoutingStore,
    empty,
    require_valkey,
    site_tag,
)

WIDE = Quotas(unfinished_jobs_per_site=50_000, leases_per_device=50_000, unsealed_per_route=50_000)
SERVERS_TIME = ""
MEBIBYTE = 1_048_576
# Server commands of a claim that is granted one job, those inside of functions counted.
CALLS_OF_A_CLAIM = 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-store"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def harness(server: TcpServer) -> AsyncIterator[ValkeyHarness]:
    harness = ValkeyHarness(server.url)
    await harness.start()
    yield harness
    await harness.store.close()


@asynccontextmanager
async def opened(
    url: str, quotas: Quotas = WIDE, now: str = "1700000000000"
) -> "AsyncIterator[ValkeyRoutingStore]":
    """A store whose time stands, or passes as the server's with SERVERS_TIME.

    What is claimed first would else go back to the queue, unsealed, while a busy machine claims the rest.
    """
    store = ValkeyRoutingStore(url, quotas=quotas, clock_setting=lambda: now)
    await store.start(20)
    try:
        yield store
    finally:
        await store.close()


def stub(job_id: str, owner: str = "alice", deadline_at_ms: int = YEAR_2100_MS) -> JobStub:
    return JobStub(
        job_id, "llm.generate", owner, "BYOLLM-S", Audience.TEAM, SizeClass.SMALL, False, deadline_at_ms
    )


def request(runner: str, *routes: tuple[str, str], maximum: int = 64) -> ClaimRequest:
    named = frozenset(Route(*route) for route in routes or ((SITE, "alice"),))
    return ClaimRequest(runner, "alice", device(), named, frozenset({"llm.generate"}), maximum, 60_000)


async def fill(store: "ValkeyRoutingStore", site: str, number: int) -> list[str]:
    names = [f"job-{index}" for index in range(number)]
    for start in range(0, number, 500):
        await asyncio.gather(*(store.enqueue(site, stub(name)) for name in names[start : start + 500]))
    return names


class TestManyConnections:
    async def test_32_connections_claim_10000_jobs_each_once(self, server: TcpServer) -> None:
        empty(server.url)
        async with opened(server.url) as store:
            names = await fill(store, SITE, 10_000)
            claimed = await asyncio.gather(*(self._claim_all(server.url, runner) for runner in range(32)))
            granted = Counter(name for grants in claimed for name in grants)
            assert granted.keys() == set(names)
            assert set(granted.values()) == {1}
            held = [len(await store.held(f"runner-{runner}")) for runner in range(32)]
            assert sum(held) == 10_000

    async def _claim_all(self, url: str, runner: int) -> list[str]:
        found: list[str] = []
        async with opened(url) as store:
            while grants := await store.claim(request(f"runner-{runner}")):
                found += ids(grants)
        return found

    async def test_claims_over_two_sites_take_each_job_once(self, server: TcpServer) -> None:
        empty(server.url)
        async with opened(server.url) as store:
            names = [(site, name) for site in (SITE, OTHER_SITE) for name in await fill(store, site, 100)]
            claimed = await asyncio.gather(
                *(self._claim_from_both(server.url, runner) for runner in range(8))
            )
            granted = Counter(job for jobs in claimed for job in jobs)
            assert granted.keys() == set(names)
            assert set(granted.values()) == {1}

    async def _claim_from_both(self, url: str, runner: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        routes = ((SITE, "alice"), (OTHER_SITE, "alice"))
        async with opened(url) as store:
            while grants := await store.claim(request(f"runner-{runner}", *routes, maximum=7)):
                found += [(grant.site_id, grant.stub.id) for grant in grants]
        return found

    async def test_the_same_lease_is_finished_once(self, server: TcpServer) -> None:
        empty(server.url)
        async with opened(server.url) as one, opened(server.url) as other:
            await one.enqueue(SITE, stub("a"))
            (grant,) = await one.claim(request("runner_1"))
            answers = await asyncio.gather(
                *(
                    store.complete("runner_1", reference(grant), envelope(), Disposition.OK)
                    for store in (one, other) * 8
                )
            )
            assert answers.count(Completed(accepted=True)) == 1
            assert answers.count(Completed(accepted=False, duplicate=True)) == 15


class TestTime:
    async def test_stores_whose_clocks_differ_agree_on_leases(
        self, server: TcpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each believes in another hour, and neither is asked."""
        empty(server.url)
        really = time.time
        async with (
            opened(server.url, now=SERVERS_TIME) as early,
            opened(server.url, now=SERVERS_TIME) as late,
        ):
            monkeypatch.setattr(time, "time", lambda: really() - 3_600)
            await early.enqueue(SITE, stub("a"))
            (grant,) = await early.claim(request("runner_1"))
            monkeypatch.setattr(time, "time", lambda: really() + 3_600)
            remaining = grant.lease_expires_at_ms - await late.now()
            assert 40_000 < remaining <= 60_000
            (verdict,) = await late.renew_leases("runner_1", [reference(grant)], 90_000)
            assert verdict.state is VerdictState.ACTIVE
            monkeypatch.setattr(time, "time", lambda: really() - 3_600)
            assert 70_000 < verdict.expires_at_ms - await early.now() <= 90_000
            assert [held.lease_expires_at_ms for held in await early.held("runner_1")] == [
                verdict.expires_at_ms
            ]
            assert await late.next_due_ms() == await early.next_due_ms() == grant.awaiting_until_ms

    async def test_the_servers_time_ends_a_lease(self, server: TcpServer) -> None:
        empty(server.url)
        async with opened(server.url, now=SERVERS_TIME) as store:
            await store.enqueue(SITE, stub("a"))
            (grant,) = await store.claim(request("runner_1"))
            assert isinstance(
                await store.seal(SITE, reference(grant), device().key_id, envelope()), RoutedJob
            )
            await store.renew_leases("runner_1", [reference(grant)], 30)
            async with asyncio.timeout(20):
                while not (swept := await store.sweep()).requeued:
                    pass
            assert [key.job_id for key in swept.requeued] == ["a"]

    async def test_what_a_store_left_behind_another_one_ends(self, harness: ValkeyHarness) -> None:
        now_ms = await harness.store.now()
        async with opened(harness.url) as gone:
            await gone.enqueue(SITE, stub("a", deadline_at_ms=now_ms + 5_000))
        await harness.store.sweep()
        await harness.advance(6_000)
        assert [key.job_id for key in (await harness.store.sweep()).ended] == ["a"]

    async def test_an_instant_that_was_never_noted_is_found(self, server: TcpServer) -> None:
        harness = ValkeyHarness(server.url)
        await harness.start()
        now_ms = await harness.store.now()
        await harness.store.enqueue(SITE, stub("a", deadline_at_ms=now_ms + 5_000))
        await harness.store.close()
        with Valkey.from_url(server.url) as client:
            client.zadd("sealwork:{sites}:due", {SITE: float("inf")})
        async with opened(server.url) as next_one:
            assert await next_one.next_due_ms() is None
            await next_one.sweep()
            assert await next_one.next_due_ms() == now_ms + 5_000

    async def test_an_instant_far_away_is_not_looked_into(self, harness: ValkeyHarness) -> None:
        store, now_ms = harness.store, await harness.store.now()
        await store.enqueue(SITE, stub("a"))
        (grant,) = await store.claim(request("runner_1"))
        await store.seal(SITE, reference(grant), device().key_id, envelope())
        # Sealed, it waits for its payload no more, which was due after ten seconds.
        assert await store.next_due_ms(9_999) == now_ms + 10_000
        assert await store.next_due_ms(10_000) == now_ms + 60_000
        assert await store.next_due_ms() == now_ms + 60_000

    async def test_a_thousand_lapses_at_once(self, harness: ValkeyHarness) -> None:
        """One call does only so many, but the caller sees time as it is."""
        store, now_ms = harness.store, await harness.store.now()
        for index in range(5):
            await asyncio.gather(
                *(
                    store.enqueue(f"site-{index}", stub(f"job-{number}", deadline_at_ms=now_ms + 9_000))
                    for number in range(200)
                )
            )
        await harness.advance(9_000)
        assert await store.job("site-0", "job-199") is None
        swept = await store.sweep()
        assert len(swept.ended) == 800
        assert len(await store.notices("site-4", 0, 1_000)) == 200


class TestLargeBodies:
    async def test_they_arrive_whole_and_leave_nothing_behind(self, harness: ValkeyHarness) -> None:
        scene = Scene(harness.store)
        grant = await scene.claimed("a")
        payload = envelope(bytes(range(256)) * 4_096)
        sealed = await scene.store.seal(SITE, reference(grant), device().key_id, payload)
        assert isinstance(sealed, RoutedJob)
        assert sealed.payload == payload
        assert await scene.take(grant) == payload
        assert (await scene.job("a")).payload == payload
        result = envelope(b"\x00\r\n" * MEBIBYTE, direction=Direction.RESULT)
        assert await scene.store.complete("runner_1", reference(grant), result, Disposition.OK) == Completed(
            accepted=True
        )
        assert (await scene.job("a")).result == result
        assert [job.result for job in await scene.store.finished(SITE)] == [result]
        await scene.store.acknowledge(SITE, ["a"])
        assert self._left(harness.url) == set()

    async def test_refused_ones_are_dropped(self, harness: ValkeyHarness) -> None:
        scene = Scene(harness.store)
        grant = await scene.claimed("a")
        large = envelope(b"x" * MEBIBYTE)
        refused = await scene.store.seal(SITE, reference(grant), device(2).key_id, large)
        assert isinstance(refused, TooLate)
        assert (
            await scene.store.complete("runner_2", reference(grant), large, Disposition.OK)
            is Refusal.NOT_HOLDER
        )
        unknown = await scene.store.seal("site_new", reference(grant), device().key_id, large)
        assert unknown == TooLate(Refusal.NOT_FOUND)
        assert self._left(harness.url) == set()

    def _left(self, url: str) -> set[str]:
        with Valkey.from_url(url) as client:
            keys = [key.decode().rpartition("}:")[2] for key in client.keys("*")]
        return {key for key in keys if key.startswith(("staged:", "payload:", "result:"))}


class TestAnnouncements:
    async def test_another_store_hears_of_them_and_the_own_one_once(self, server: TcpServer) -> None:
        empty(server.url)
        async with opened(server.url) as one, opened(server.url) as other:
            here: list[Change] = []
            there: list[Change] = []
            one.listen(here.append)
            other.listen(there.append)
            await one.enqueue(SITE, stub("a"))
            opening = WorkAvailable(Route(SITE, "alice"), "llm.generate", Audience.TEAM)
            assert here == [opening]
            (grant,) = await one.claim(request("runner_1"))
            await one.cancel(SITE, "a")
            await other.release_leases("runner_1", [reference(grant)], ReleaseReason.SHUTDOWN)
            cancelled = LeaseChanged("runner_1", reference(grant), SITE, cancel_requested=True)
            expected = [opening, NoticeAdded(SITE), cancelled, NoticeAdded(SITE)]
            await one.delivered()
            await other.delivered()
            assert here == expected
            assert there == expected

    async def test_time_that_passes_elsewhere_is_heard_here(self, harness: ValkeyHarness) -> None:
        scene = Scene(harness.store)
        grant = await scene.claimed("a")
        async with opened(harness.url) as other:
            heard: list[Change] = []
            other.listen(heard.append)
            await harness.advance(10_000)
            await harness.store.sweep()
            await other.delivered()
        lost = LeaseChanged("runner_1", reference(grant), SITE, end=LeaseEnd.WINDOW_LAPSED)
        assert lost in heard

    async def test_what_cannot_be_read_is_skipped(self, harness: ValkeyHarness) -> None:
        heard: list[Change] = []
        harness.store.listen(heard.append)
        with Valkey.from_url(harness.url) as client:
            for text in (b"\xff", b"{}", b"[]", b'["x","s",[["later",1]]]', b'["x","s",[["work"]]]', b"7"):
                client.publish("sealwork:changes", text)
        async with opened(harness.url) as other:
            await other.enqueue(SITE, stub("a"))
        await harness.delivered()
        assert [type(change) for change in heard] == [WorkAvailable]

    async def test_a_listener_that_fails_harms_nobody(self, harness: ValkeyHarness) -> None:
        def fail(_: Change) -> None:
            raise RuntimeError("not today")

        heard: list[Change] = []
        harness.store.listen(fail)
        harness.store.listen(heard.append)
        await harness.store.enqueue(SITE, stub("a"))
        assert len(heard) == 1


class TestCost:
    @pytest.mark.parametrize("waiting", [50, 2_000])
    async def test_of_a_claim_does_not_grow_with_what_waits(self, server: TcpServer, waiting: int) -> None:
        empty(server.url)
        async with opened(server.url) as store:
            await fill(store, SITE, waiting)
            await store.claim(request("runner_1", maximum=1))
            before, looked_at = self._calls(server.url), store.inspected
            for _ in range(10):
                assert len(await store.claim(request("runner_1", maximum=1))) == 1
            assert store.inspected - looked_at == 30
            assert self._calls(server.url) - before == 10 * CALLS_OF_A_CLAIM

    def _calls(self, url: str) -> int:
        with Valkey.from_url(url) as client:
            stats = client.info("commandstats")
        apart = {"cmdstat_info", "cmdstat_client|setinfo", "cmdstat_client|setname"}
        return sum(stat["calls"] for name, stat in stats.items() if name not in apart)

    async def test_sites_do_not_pay_for_each_other(self, server: TcpServer) -> None:
        empty(server.url)
        async with opened(server.url) as store:
            await asyncio.gather(*(store.enqueue(f"site-{number}", stub("a")) for number in range(300)))
            await fill(store, SITE, 5)
            await store.claim(request("runner_1", maximum=1))
            before = self._calls(server.url)
            assert len(await store.claim(request("runner_1", maximum=1))) == 1
            assert self._calls(server.url) - before == CALLS_OF_A_CLAIM


async def test_keys_of_sites_lie_in_one_slot_each(harness: ValkeyHarness) -> None:
    scene = Scene(harness.store)
    await scene.done("a{b}")
    await scene.ready("c}d{")
    with Valkey.from_url(harness.url) as client:
        slots = {
            client.execute_command("CLUSTER", "KEYSLOT", key)
            for key in client.keys(f"sealwork:{{{site_tag(SITE)}}}:*")
        }
    assert len(slots) == 1


async def test_claims_over_sites_take_turns_and_leave_none_out(harness: ValkeyHarness) -> None:
    store = harness.store
    for site in ("s1", "s2", "s3"):
        for number in range(2):
            await store.enqueue(site, stub(f"{site}-{number}"))
    routes = (("s1", "alice"), ("s2", "alice"), ("s3", "alice"))
    assert ids(await store.claim(request("runner_1", *routes, maximum=4))) == [
        "s1-0",
        "s2-0",
        "s3-0",
        "s1-1",
    ]
    assert ids(await store.claim(request("runner_2", *routes))) == ["s2-1", "s3-1"]


async def test_a_claim_that_was_answered_from_two_sites_is_answered_so_again(harness: ValkeyHarness) -> None:
    store = harness.store
    await store.enqueue("s1", stub("a"))
    await store.enqueue("s2", stub("b"))
    asked = replace(request("runner_1", ("s1", "alice"), ("s2", "alice")), request_id="r-1")
    first = await store.claim(asked)
    assert ids(first) == ["a", "b"]
    only_one = replace(asked, routes=frozenset({Route("s2", "alice")}))
    assert [await store.claim(again) for again in (asked, only_one)] == [first, first]
