"""Servers that are killed, restarted or away: nothing that was confirmed is lost, and all come back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from relay_service.core.model import (
    Audience,
    Change,
    Direction,
    Disposition,
    GrantedJob,
    JobState,
    JobStub,
    NoticeKind,
    Route,
    RoutedJob,
    SizeClass,
    WorkAvailable,
)
from relay_service.core.quotas import Quotas
from relay_service.store.base import ClaimRequest, Completed, StoreUnavailable
from relay_service.store.contract.scene import (
    SITE,
    YEAR_2100_MS,
    Scene,
    device,
    envelope,
    presence,
    reference,
)

from .valkey_fixture import TcpServer, Valkey, ValkeyRoutingStore, back, require_valkey

Answer = TypeVar("Answer")

# Stands still, so that no window ends however slow the machine is.
NOW_MS = 1_700_000_000_000
WIDE = Quotas(unsealed_per_route=2_000, leases_per_device=2_000)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path, appendfsync="always")
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def store(server: TcpServer) -> "AsyncIterator[ValkeyRoutingStore]":
    store = ValkeyRoutingStore(server.url, quotas=WIDE)
    await store.start(20)
    yield store
    await store.close()


async def away(operation: Callable[[], Awaitable[object]]) -> None:
    """Returns when the store has noticed that its server is gone."""
    async with asyncio.timeout(20):
        while True:
            try:
                await operation()
            except StoreUnavailable:
                return


async def test_away_and_back(server: TcpServer, store: "ValkeyRoutingStore") -> None:
    scene = Scene(store)
    held = await scene.claimed("held")
    await scene.done("done")
    server.kill()
    await away(store.now)
    operations: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: store.enqueue(SITE, stub("a")),
        lambda: store.claim(request("runner_1")),
        lambda: store.renew_leases("runner_1", [reference(held)], 60_000),
        lambda: store.take_payload("runner_1", reference(held)),
        lambda: store.notices(SITE, 0, 10),
        lambda: store.seen(presence()),
        lambda: store.use_nonce("runner_1", "n", 1_000),
        store.sweep,
        store.next_due_ms,
    )
    for operation in operations:
        with pytest.raises(StoreUnavailable):
            await operation()
    server.start()
    assert await back(lambda: store.held("runner_1")) == [held]
    assert [job.key.job_id for job in await store.finished(SITE)] == ["done"]
    assert [row.kind for row in await store.notices(SITE, 0, 10)] == [
        NoticeKind.PLEASE_SEAL,
        NoticeKind.RESULT_READY,
    ]
    assert isinstance(await scene.seal(held), RoutedJob)


async def test_the_subscription_comes_back_and_tells_of_the_gap(server: TcpServer) -> None:
    gaps = asyncio.Event()
    heard: list[Change] = []
    listening = ValkeyRoutingStore(server.url, quotas=WIDE, on_gap=gaps.set)
    await listening.start(20)
    listening.listen(heard.append)
    assert not gaps.is_set()
    server.kill()
    server.start()
    async with asyncio.timeout(30):
        await gaps.wait()
    await back(listening.delivered)
    other = ValkeyRoutingStore(server.url, quotas=WIDE)
    await other.start(20)
    await other.enqueue(SITE, stub("a"))
    await listening.delivered()
    assert heard == [WorkAvailable(Route(SITE, "alice"), "llm.generate", Audience.TEAM)]
    await other.close()
    await listening.close()


async def test_a_subscription_that_is_cut_is_renewed(server: TcpServer, store: "ValkeyRoutingStore") -> None:
    heard: list[Change] = []
    store.listen(heard.append)
    other = ValkeyRoutingStore(server.url, quotas=WIDE)
    await other.start(20)
    with Valkey.from_url(server.url) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await back(store.delivered)
    await other.enqueue(SITE, stub("a"))
    await store.delivered()
    assert len(heard) == 1
    await other.close()


async def test_functions_that_were_removed_are_loaded_again(
    server: TcpServer, store: "ValkeyRoutingStore"
) -> None:
    await store.enqueue(SITE, stub("a"))
    with Valkey.from_url(server.url) as client:
        client.execute_command("FUNCTION", "FLUSH")
    assert [grant.stub.id for grant in await store.claim(request("runner_1"))] == ["a"]


async def test_a_full_memory_takes_nothing_in_and_still_lets_go(
    server: TcpServer, store: "ValkeyRoutingStore"
) -> None:
    scene = Scene(store)
    await scene.done("done")
    running = await scene.running("running")
    with Valkey.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailable):
            await store.enqueue(SITE, stub("more"))
        with pytest.raises(StoreUnavailable):
            await scene.complete(running)
        assert [verdict.state.value for verdict in await scene.renew(running)] == ["active"]
        assert list(await store.acknowledge(SITE, ["done"])) == ["done"]
        client.config_set("maxmemory", 0)
    assert await scene.complete(running) == Completed(accepted=True)


async def test_killed_in_the_middle_of_a_thousand_jobs(server: TcpServer) -> None:
    """What was confirmed before a kill is there after it, at every stage of a job."""
    store = ValkeyRoutingStore(server.url, quotas=WIDE, clock_setting=lambda: str(NOW_MS))
    await store.start(20)
    names = [f"job-{number}" for number in range(1_000)]
    await survive_enqueueing(server, store, names)
    held = await survive_claiming(server, store)
    assert len(held) == 1_000
    await survive_sealing(server, store, held)
    await survive_reporting(server, store, held)
    results = await store.finished(SITE)
    assert sorted(job.key.job_id for job in results) == sorted(names)
    assert {job.result.ciphertext for job in results if job.result} == {b"result"}
    rows = await store.notices(SITE, 0, 5_000)
    assert [row.kind for row in rows] == [NoticeKind.RESULT_READY] * 1_000
    await store.close()


async def survive_enqueueing(server: TcpServer, store: "ValkeyRoutingStore", names: list[str]) -> None:
    enqueues = [partial(store.enqueue, SITE, stub(name)) for name in names]
    confirmed = await interrupted(server, enqueues)
    kept = {job.key.job_id for job in await back(store.jobs)}
    assert {names[index] for index in confirmed} <= kept
    await asyncio.gather(*(enqueue() for enqueue in enqueues))


async def survive_claiming(server: TcpServer, store: "ValkeyRoutingStore") -> list[tuple[str, GrantedJob]]:
    runners = [f"runner_{number}" for number in range(50)]
    claims = [partial(store.claim, request(runner, 20)) for runner in runners]
    confirmed = await interrupted(server, claims)
    for index, grants in confirmed.items():
        held = await back(partial(store.held, runners[index]))
        assert {grant.lease_id for grant in grants} <= {grant.lease_id for grant in held}
    await asyncio.gather(*(claim() for claim in claims))
    return [(runner, grant) for runner in runners for grant in await store.held(runner)]


async def survive_sealing(
    server: TcpServer, store: "ValkeyRoutingStore", held: list[tuple[str, GrantedJob]]
) -> None:
    confirmed = await interrupted(server, [partial(seal, store, grant) for _, grant in held])
    for index in confirmed:
        job = await back(partial(store.job, SITE, held[index][1].stub.id))
        assert job is not None
        assert (job.state, job.payload) == (JobState.READY, envelope())


async def survive_reporting(
    server: TcpServer, store: "ValkeyRoutingStore", held: list[tuple[str, GrantedJob]]
) -> None:
    reports = [partial(report, store, runner, grant) for runner, grant in held]
    confirmed = await interrupted(server, reports)
    finished = {job.key.job_id for job in await back(partial(store.finished, SITE))}
    assert {held[index][1].stub.id for index in confirmed} <= finished
    answers = await asyncio.gather(*(report() for report in reports))
    assert all(isinstance(answer, Completed) for answer in answers)


async def interrupted(
    server: TcpServer, operations: Sequence[Callable[[], Awaitable[Answer]]]
) -> dict[int, Answer]:
    """Starts all, kills the server when a third is confirmed, restarts it; what was confirmed, by index."""
    confirmed: dict[int, Answer] = {}
    enough = asyncio.Event()

    async def attempt(index: int) -> None:
        try:
            confirmed[index] = await operations[index]()
        except StoreUnavailable:
            return
        if len(confirmed) >= len(operations) // 3:
            enough.set()

    async def in_turn(start: int) -> None:
        for index in range(start, len(operations), 20):
            await attempt(index)

    running = [asyncio.create_task(in_turn(start)) for start in range(20)]
    await enough.wait()
    server.kill()
    await asyncio.gather(*running)
    server.start()
    return confirmed


async def seal(store: "ValkeyRoutingStore", grant: GrantedJob) -> object:
    return await store.seal(SITE, reference(grant), device().key_id, envelope())


async def report(store: "ValkeyRoutingStore", runner: str, grant: GrantedJob) -> object:
    result = envelope(b"result", direction=Direction.RESULT)
    return await store.complete(runner, reference(grant), result, Disposition.OK)


def stub(job_id: str) -> JobStub:
    return JobStub(
        job_id, "llm.generate", "alice", "BYOLLM-S", Audience.TEAM, SizeClass.SMALL, False, YEAR_2100_MS
    )


def request(runner: str, maximum: int = 10) -> ClaimRequest:
    routes = frozenset({Route(SITE, "alice")})
    return ClaimRequest(runner, "alice", device(), routes, frozenset({"llm.generate"}), maximum, 600_000)
