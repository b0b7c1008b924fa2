"""What a later release may have written: every reader skips it, counts it and says so in the log."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from relay_service.core.model import (
    GrantedJob,
    NoticeKind,
    Refusal,
    ReleaseReason,
    VerdictState,
)
from relay_service.store.contract.scene import OTHER_SITE, SITE, Scene, ids, presence, reference
from relay_service.stores import open_store
from service_common.clocks import SystemClock
from service_common.metrics import Metrics

from .test_valkey_garbage import Spoil, key, spoil, with_value
from .valkey_fixture import TcpServer, Valkey, ValkeyHarness, require_valkey

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-newer"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def harness(server: TcpServer) -> AsyncIterator[ValkeyHarness]:
    harness = ValkeyHarness(server.url)
    await harness.start()
    yield harness
    await harness.store.close()


@pytest.fixture
def client(server: TcpServer) -> Iterator[Any]:
    with Valkey.from_url(server.url) as client:
        yield client


def next_version(record: dict[str, Any]) -> None:
    """A record as a later release may keep it."""
    record["v"] = 2
    record["priority"] = {"class": "urgent", "since": "2027-01-01"}
    record["stub"]["size_class"] = "enormous"


LATER: dict[str, Spoil] = {
    "a later version": next_version,
    "a state of a later release": with_value("paused", "state"),
    "a stub with an audience of a later release": with_value("everyone", "stub", "audience"),
    "a stub with a size of a later release": with_value("enormous", "stub", "size_class"),
    "a stub with an instant of a later release": with_value("2100-01-01T00:00:00Z", "stub", "deadline_at_ms"),
}


async def queued(scene: Scene, _: ValkeyHarness) -> GrantedJob | None:
    await scene.enqueue("a")
    return None


async def claimed(scene: Scene, _: ValkeyHarness) -> GrantedJob | None:
    await scene.enqueue("a")
    (grant,) = await scene.claim(request_id="once")
    return grant


async def ready(scene: Scene, _: ValkeyHarness) -> GrantedJob | None:
    return await scene.ready("a")


async def done(scene: Scene, _: ValkeyHarness) -> GrantedJob | None:
    return await scene.done("a")


async def reads_job(scene: Scene, grant: Any) -> None:
    assert await scene.store.job(SITE, "a") is None


async def reads_jobs(scene: Scene, grant: Any) -> None:
    assert list(await scene.store.jobs()) == []


async def reads_oldest(scene: Scene, grant: Any) -> None:
    assert await scene.store.oldest_queued_ms() is None


async def claims(scene: Scene, grant: Any) -> None:
    assert list(await scene.claim()) == []


async def claims_again(scene: Scene, grant: Any) -> None:
    assert list(await scene.claim(request_id="once")) == []


async def enqueues(scene: Scene, grant: Any) -> None:
    assert (await scene.enqueue("a")).state.value == "queued"


async def cancels(scene: Scene, grant: Any) -> None:
    assert await scene.store.cancel(SITE, "a") is False


async def renews(scene: Scene, grant: Any) -> None:
    assert [verdict.state for verdict in await scene.renew(grant)] == [VerdictState.LOST]


async def lists_held(scene: Scene, grant: Any) -> None:
    assert list(await scene.store.held("runner_1")) == []


async def lists_cancels(scene: Scene, grant: Any) -> None:
    assert list(await scene.store.cancel_requests("runner_1")) == []


async def lists_awaiting(scene: Scene, grant: Any) -> None:
    assert list(await scene.store.awaiting(SITE)) == []


async def lists_finished(scene: Scene, grant: Any) -> None:
    assert list(await scene.store.finished(SITE)) == []


async def lists_notices(scene: Scene, grant: Any) -> None:
    assert list(await scene.store.notices(SITE, 0, 10)) == []


async def takes(scene: Scene, grant: Any) -> None:
    assert await scene.take(grant) is Refusal.NOT_FOUND


async def completes(scene: Scene, grant: Any) -> None:
    assert await scene.complete(grant) is Refusal.NOT_FOUND


async def releases(scene: Scene, grant: Any) -> None:
    assert await scene.release(grant, ReleaseReason.PAUSE) == []


async def seals(scene: Scene, grant: Any) -> None:
    assert getattr(await scene.seal(grant), "refusal", None) is Refusal.NOT_FOUND


async def collects(scene: Scene, grant: Any) -> None:
    assert list(await scene.store.acknowledge(SITE, ["a"])) == []


Begin = Callable[[Scene, ValkeyHarness], Awaitable[GrantedJob | None]]
Read = Callable[[Scene, Any], Awaitable[None]]
READERS: list[tuple[Begin, Read]] = [
    (queued, reads_job),
    (queued, reads_jobs),
    (queued, reads_oldest),
    (queued, claims),
    (queued, enqueues),
    (queued, cancels),
    (claimed, claims_again),
    (claimed, renews),
    (claimed, lists_held),
    (claimed, lists_cancels),
    (claimed, lists_awaiting),
    (claimed, lists_notices),
    (claimed, releases),
    (claimed, seals),
    (ready, takes),
    (ready, completes),
    (ready, lists_held),
    (done, lists_finished),
    (done, lists_notices),
    (done, collects),
]


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize(("begin", "read"), READERS, ids=lambda function: function.__name__)
async def test_a_later_record_is_skipped_by_every_reader(
    harness: ValkeyHarness,
    client: Any,
    begin: Begin,
    read: Read,
    later: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(harness.store)
    grant = await begin(scene, harness)
    spoil(client, "a", LATER[later])
    with caplog.at_level(logging.WARNING):
        await read(scene, grant)
    assert harness.store.unreadable == 1
    assert [record.message for record in caplog.records] == ["a stored job could not be read and is skipped"]
    await scene.enqueue("good")
    assert ids(await scene.claim()) == (["a", "good"] if read is enqueues else ["good"])


@pytest.mark.parametrize("later", LATER)
async def test_a_sweep_skips_a_later_record(harness: ValkeyHarness, client: Any, later: str) -> None:
    scene = Scene(harness.store)
    await scene.claimed("a")
    await scene.claimed("b")
    spoil(client, "a", LATER[later])
    await harness.advance(10_000)
    swept = await harness.store.sweep()
    assert [key.job_id for key in swept.requeued] == ["b"]
    assert harness.store.unreadable == 1
    await harness.store.sweep()
    assert harness.store.unreadable == 1


# Values that the functions on the server let pass and that this process cannot read.
UNKNOWN_WORDS: dict[str, Spoil] = {
    "why it came back": with_value({"cause": "moved", "count": 1, "at_ms": 1}, "requeue"),
    "an instant with a point": with_value("4102444800000.5", "stub", "deadline_at_ms"),
}


@pytest.mark.parametrize("word", UNKNOWN_WORDS)
async def test_what_only_this_process_cannot_read(harness: ValkeyHarness, client: Any, word: str) -> None:
    scene = Scene(harness.store)
    grant = await scene.claimed("a")
    await scene.release(grant, ReleaseReason.PAUSE)
    spoil(client, "a", UNKNOWN_WORDS[word])
    assert list(await harness.store.notices(SITE, 0, 10)) == [] or word != "why it came back"
    await harness.store.jobs()
    await scene.claim()
    await harness.store.held("runner_1")
    assert harness.store.unreadable >= 1


async def test_a_word_of_an_end_of_a_later_release(harness: ValkeyHarness, client: Any) -> None:
    scene = Scene(harness.store)
    await scene.enqueue("a", "b")
    for job_id in ("a", "b"):
        assert await harness.store.cancel(SITE, job_id)
    client.hset(key("ends"), "a", b"1700000000000 handed-over")
    rows = await scene.notices()
    assert [(row.key.job_id, row.kind) for row in rows] == [("b", NoticeKind.JOB_ENDED)]
    assert harness.store.unreadable == 1


async def test_a_lane_that_cannot_be_read_is_worked_out_again(harness: ValkeyHarness, client: Any) -> None:
    scene = Scene(harness.store)
    await scene.enqueue("a", "b")
    (digest,) = client.hkeys(key("lanes:alice"))
    before = client.hget(key("lanes:alice"), digest)
    for garbage in (b"\xffgarbage", b"{}", json.dumps(["v2", {"lane": 1}])):
        client.hset(key("lanes:alice"), digest, garbage)
        granted = await scene.claim(maximum=1)
        assert ids(granted) == ["a"]
        assert client.hget(key("lanes:alice"), digest) == before
        await scene.release(granted[0])
    assert harness.store.unreadable == 3


async def test_broken_keys_of_one_site_stop_no_other(harness: ValkeyHarness, client: Any) -> None:
    """Time, renewals, what a device holds, counts and lists go on at the sound site."""
    scene, store = Scene(harness.store), harness.store
    broken = await scene.claimed("a")
    await scene.enqueue("b", site=OTHER_SITE)
    (sound,) = await scene.claim(routes=[(OTHER_SITE, "alice")])
    for name in ("jobs", "due"):
        client.delete(key(name))
        client.set(key(name), "neither a hash nor a sorted set")
    leases = [reference(broken), reference(sound)]
    verdicts = await store.renew_leases("runner_1", leases, 60_000)
    assert [verdict.state for verdict in verdicts] == [VerdictState.LOST, VerdictState.ACTIVE]
    assert [granted.stub.id for granted in await store.held("runner_1")] == ["b"]
    assert list(await store.cancel_requests("runner_1")) == []
    assert await store.oldest_queued_ms() is None
    assert await store.release_leases("runner_1", leases, ReleaseReason.PAUSE) == ["b"]
    assert ids(await scene.claim(routes=[(OTHER_SITE, "alice")])) == ["b"]
    await harness.advance(10_000)
    swept = await store.sweep()
    assert [key.job_id for key in swept.requeued] == ["b"]
    assert store.unreadable == 1


async def test_a_device_of_a_later_release_is_unknown(harness: ValkeyHarness, client: Any) -> None:
    await harness.store.seen(presence("runner_1"))
    seen_at = client.hget("sealwork:{presence}:known", "runner_1").split(b" ")[0]
    for device in ({"keys": 1}, 5, None, "a.b"):
        text = json.dumps({"owner": "alice", "device": device, "capabilities": [], "withheld": []})
        client.hset("sealwork:{presence}:known", "runner_1", seen_at + b" " + text.encode())
        assert await harness.store.presence("runner_1") is None
        assert list(await harness.store.everyone()) == []


async def test_a_report_of_a_later_release_is_skipped(harness: ValkeyHarness, client: Any) -> None:
    await Scene(harness.store).enqueue("a")
    now_ms = await harness.store.now()
    client.zadd(key("churned"), {"later": now_ms})
    assert list(await harness.store.churn_reports()) == []
    assert harness.store.unreadable == 1


async def test_a_relay_counts_it_and_logs_it(server: TcpServer, client: Any) -> None:
    client.flushall()
    metrics = Metrics()
    with capture_logs() as logs:
        async with open_store(server.url, SystemClock(), metrics, lambda: None) as store:
            scene = Scene(store)
            await scene.enqueue("a", "good")
            spoil(client, "a", next_version)
            assert ids(await scene.claim()) == ["good"]
    assert metrics.value("relay_unreadable_values_total") == 1
    told = [entry for entry in logs if entry["event"] == "unreadable_value_skipped"]
    assert told == [
        {"event": "unreadable_value_skipped", "site_id": SITE, "job_id": "a", "log_level": "error"}
    ]
