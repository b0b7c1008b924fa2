"""Grants that are held back, on a server: garbage in their records, and races of the policy's answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from relay_service.store.contract.scene import SITE, Scene, ids

from .valkey_fixture import TcpServer, Valkey, ValkeyHarness, require_valkey, site_tag


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-authorising"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def harness(server: TcpServer) -> AsyncIterator[ValkeyHarness]:
    harness = ValkeyHarness(server.url)
    await harness.start()
    yield harness
    await harness.store.close()


def change_claim(url: str, **fields: object) -> None:
    name = f"sealwork:{{{site_tag(SITE)}}}:jobs"
    with Valkey.from_url(url) as client:
        record = json.loads(client.hget(name, "a"))
        record["claim"] |= fields
        client.hset(name, "a", json.dumps(record))


@pytest.mark.parametrize("fields", [{"lease_expires_at_ms": "soon"}, {"signed_grant": 7}, {"device": "?"}])
async def test_a_broken_record_is_neither_authorised_nor_declined(
    harness: ValkeyHarness, server: TcpServer, fields: dict[str, Any]
) -> None:
    scene = Scene(harness.store)
    grant = await scene.held_back()
    change_claim(server.url, **fields)
    assert await scene.authorise(grant) is None
    assert await scene.decline(grant) is False
    assert harness.store.unreadable == 1
    # The place that it took is free again.
    await harness.advance(5_000)
    await scene.enqueue("b", "c")
    assert ids(await scene.claim(authorise=True)) == ["b", "c"]


async def test_a_signed_grant_that_cannot_be_read_is_not_handed_out(
    harness: ValkeyHarness, server: TcpServer
) -> None:
    scene = Scene(harness.store)
    await scene.enqueue("a")
    (grant,) = await scene.claim(authorise=True, request_id="again")
    await scene.authorise(grant)
    change_claim(server.url, signed_grant="***")
    assert list(await harness.store.held("runner_1")) == []
    assert await scene.authorise(grant) is None
    assert ids(await scene.claim(authorise=True, request_id="again")) == []
    assert harness.store.unreadable >= 2


async def test_of_many_answers_at_once_one_counts(harness: ValkeyHarness) -> None:
    scene = Scene(harness.store)
    grant = await scene.held_back()
    answers = await asyncio.gather(
        *(scene.authorise(grant, f"signed-{number}".encode()) for number in range(20)),
        *(scene.decline(grant, refused=True) for _ in range(20)),
    )
    signed = {granted.signed_grant for granted in answers[:20] if not isinstance(granted, bool) and granted}
    declined = [answer for answer in answers[20:] if answer]
    assert len(signed) + len(declined) == 1
