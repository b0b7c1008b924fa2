"""Stored values that this release did not write: skipped and counted, never handed out."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from relay_service.core.model import JobState, LeaseRef, NoticeKind, Refusal, ReleaseReason, VerdictState
from relay_service.store.contract.scene import (
    OTHER_SITE,
    SITE,
    Scene,
    device,
    envelope,
    ids,
    presence,
    reference,
)

from .valkey_fixture import TcpServer, Valkey, ValkeyHarness, require_valkey, site_tag

Record = dict[str, Any]
Spoil = Callable[[Record], object]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-garbage"))
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


def key(name: str, site: str = SITE) -> str:
    return f"sealwork:{{{site_tag(site)}}}:{name}"


def spoil(client: Any, job_id: str, change: Spoil) -> None:
    record = json.loads(client.hget(key("jobs"), job_id))
    changed = change(record)
    text = changed if isinstance(changed, bytes) else json.dumps(record)
    client.hset(key("jobs"), job_id, text)


def without(*path: str) -> Spoil:
    def change(record: Record) -> None:
        for name in path[:-1]:
            record = record[name]
        del record[path[-1]]

    return change


def with_value(value: object, *path: str) -> Spoil:
    def change(record: Record) -> None:
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    return change


BROKEN: dict[str, Spoil] = {
    "not JSON": lambda _: b"\xff\x00 not a record",
    "empty": lambda _: b"",
    "a list": lambda _: b"[1,2]",
    "deep": lambda _: b"[" * 5_000,
    "a later version": with_value(2, "v"),
    "no version": without("v"),
    "no stub": without("stub"),
    "another job's stub": with_value("other", "stub", "id"),
    "an unknown audience": with_value("everyone", "stub", "audience"),
    "an unknown size": with_value("huge", "stub", "size_class"),
    "a deadline that is no number": with_value("soon", "stub", "deadline_at_ms"),
    "an unknown state": with_value("paused", "state"),
    "a sequence that is no number": with_value("first", "sequence"),
    "refusals that are no list": with_value("runner_1", "refused_by"),
    "a retry without an instant": with_value([["runner_1"]], "retry_after_ms"),
    "null": with_value(None, "stub", "owner"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_record_is_not_granted(
    harness: ValkeyHarness, client: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(harness.store)
    await scene.enqueue("bad", "good")
    spoil(client, "bad", BROKEN[name])
    kept = client.hget(key("jobs"), "bad")
    with caplog.at_level(logging.WARNING):
        assert ids(await scene.claim()) == ["good"]
    assert harness.store.unreadable == 1
    assert [record.message for record in caplog.records] == ["a stored job could not be read and is skipped"]
    assert await scene.state("bad") == "gone"
    assert client.hget(key("unreadable"), "bad") == kept
    assert (await scene.enqueue("bad")).state is JobState.QUEUED


@pytest.mark.parametrize("state", ["queued", "awaiting-payload", "ready", "running", "done"])
async def test_no_operation_stumbles(harness: ValkeyHarness, client: Any, state: str) -> None:
    scene, store = Scene(harness.store), harness.store
    grant = await scene.claimed("a")
    if state in {"ready", "running", "done"}:
        await scene.seal(grant)
    if state in {"running", "done"}:
        await scene.take(grant)
    if state == "done":
        await scene.complete(grant)
    if state == "queued":
        await scene.release(grant)
    await scene.enqueue("good", owner="bob")
    spoil(client, "a", lambda _: b"garbage")
    lease = reference(grant)
    assert await scene.take(grant) is Refusal.NOT_FOUND
    assert await scene.complete(grant) is Refusal.NOT_FOUND
    assert getattr(await scene.seal(grant), "refusal", None) is Refusal.NOT_FOUND
    assert [verdict.state for verdict in await scene.renew(grant)] == [VerdictState.LOST]
    assert await scene.release(grant) == []
    await store.acknowledge_cancels("runner_1", [lease])
    assert await store.cancel(SITE, "a") is False
    assert list(await store.acknowledge(SITE, ["a"])) == []
    assert list(await store.held("runner_1")) == []
    assert list(await store.cancel_requests("runner_1")) == []
    assert list(await store.awaiting(SITE)) == []
    assert list(await store.finished(SITE)) == []
    assert await scene.notice_kinds() == []
    assert [job.key.job_id for job in await store.jobs()] == ["good"]
    assert ids(await scene.claim(routes=[(SITE, "alice"), (SITE, "bob")])) == []
    await harness.advance(90_000_000)
    await store.sweep()
    assert await scene.state("a") == "gone"
    assert store.unreadable == 1


async def test_a_slot_that_garbage_held_is_free_after_its_window(harness: ValkeyHarness, client: Any) -> None:
    scene = Scene(harness.store)
    await scene.enqueue("a", "b", "c")
    assert ids(await scene.claim()) == ["a", "b"]
    spoil(client, "a", lambda _: b"garbage")
    assert await scene.state("a") == "gone"
    assert ids(await scene.claim("runner_2")) == []
    await harness.advance(10_000)
    assert ids(await scene.claim("runner_2")) == ["c"]


async def test_a_spoiled_result_frees_its_bytes(harness: ValkeyHarness, client: Any) -> None:
    scene = Scene(harness.store)
    await scene.done("a", ciphertext=b"x" * 9_000)
    spoil(client, "a", lambda _: b"garbage")
    assert list(await harness.store.finished(SITE)) == []
    assert client.hget(key("site"), "bytes") == b"0"
    assert client.exists(key("result:a")) == 0
    await scene.done("b", ciphertext=b"x" * 9_000)
    assert [job.key.job_id for job in await harness.store.finished(SITE)] == ["b"]


async def test_who_is_told(server: TcpServer, client: Any) -> None:
    from relay_service.store.valkey import ValkeyRoutingStore

    client.flushall()
    told: list[tuple[str, str]] = []
    store = ValkeyRoutingStore(server.url, on_unreadable=lambda *names: told.append(names))
    await store.start(20)
    await Scene(store).enqueue("a")
    spoil(client, "a", lambda _: b"garbage")
    assert await store.job(SITE, "a") is None
    await store.close()
    assert told == [(SITE, "a")]


async def test_keys_of_a_wrong_kind_stop_one_site_and_no_claim(harness: ValkeyHarness, client: Any) -> None:
    scene = Scene(harness.store)
    await scene.enqueue("a")
    await scene.enqueue("b", site=OTHER_SITE)
    client.set(key("turns"), "not a sorted set")
    routes = [(SITE, "alice"), (OTHER_SITE, "alice")]
    assert ids(await scene.claim(routes=routes)) == ["b"]
    assert harness.store.unreadable == 1


async def test_presence_that_cannot_be_read_is_unknown(harness: ValkeyHarness, client: Any) -> None:
    await harness.store.seen(presence("runner_1"))
    await harness.store.seen(presence("runner_2"))
    client.hset("sealwork:{presence}:known", "runner_1", b"garbage")
    assert await harness.store.presence("runner_1") is None
    assert [known.runner_id for known in await harness.store.everyone()] == ["runner_2"]


@pytest.mark.parametrize(
    "lease_id", ["", ".", "a.b", "x" * 20 + ".", "." + "x" * 20, "{}" * 10 + ".x", "€" * 30]
)
async def test_leases_that_were_never_ours(harness: ValkeyHarness, client: Any, lease_id: str) -> None:
    scene, store = Scene(harness.store), harness.store
    await scene.claimed("a")
    before = set(client.keys("*"))
    strange = LeaseRef("b", lease_id)
    assert await store.take_payload("runner_1", strange) is Refusal.NOT_FOUND
    (verdict,) = await store.renew_leases("runner_1", [strange], 60_000)
    assert (verdict.state, verdict.end) == (VerdictState.LOST, None)
    assert list(await store.release_leases("runner_1", [strange], ReleaseReason.PAUSE)) == []
    assert getattr(await store.seal(SITE, strange, device().key_id, envelope()), "refusal", None) is (
        Refusal.NOT_FOUND
    )
    assert set(client.keys("*")) == before


async def test_the_inbox_skips_what_was_lost(harness: ValkeyHarness, client: Any) -> None:
    scene = Scene(harness.store)
    await scene.enqueue("a", "b")
    await scene.claim()
    spoil(client, "a", lambda _: b"garbage")
    rows = await scene.notices()
    assert [(row.key.job_id, row.kind) for row in rows] == [("b", NoticeKind.PLEASE_SEAL)]
