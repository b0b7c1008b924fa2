"""A store that cannot be reached for a moment: what was due then happens afterwards, by itself."""

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from itertools import product
from typing import Any

import grpc
import pytest
import structlog.testing

from sealwork.relay.v1 import daemon_plane_pb2, site_plane_pb2
from tests.relay_service.raw_client import Refusal
from tests.relay_service.relay_fixture import RelayUnderTest, ref

SECRET = "a text that nobody outside may read"


@contextmanager
def failing(relay: RelayUnderTest, *operations: str) -> Any:
    """These operations of the store fail while the block lasts."""

    async def fail(*_: object, **__: object) -> None:
        raise ConnectionError(SECRET)

    stores = [server.relay.store for server in relay.servers]
    for store, operation in product(stores, operations):
        setattr(store, operation, fail)
    try:
        # Rendering a traceback for a terminal takes longer than the test.
        with structlog.testing.capture_logs():
            yield
    finally:
        for store, operation in product(stores, operations):
            delattr(store, operation)


async def turns(count: int = 50) -> None:
    """Lets what is ready run, until it fails for sure."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_claim_is_made_up(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await stream.settle()
    with failing(relay, "claim"):
        await relay.enqueue("job-1")
        await turns()
    assert await relay.state("job-1") == "queued"
    await relay.clock.advance_async(250)
    assert (await stream.next("granted")).stub.id == "job-1"


async def test_a_notice_is_made_up(relay: RelayUnderTest) -> None:
    site = await relay.site().connect()
    await site.settle()
    with failing(relay, "notices"):
        await relay.enqueue("job-1")
        await relay.cancel("job-1")
        await turns()
    await relay.clock.advance_async(250)
    assert (await site.next("notice")).job_id == "job-1"


async def test_notices_of_a_lost_stream_are_made_up(relay: RelayUnderTest) -> None:
    first, second = await relay.site().connect(limit=5), await relay.site().connect(process_id="2", limit=1)
    await relay.enqueue("job-1")
    await relay.cancel("job-1")
    await first.next("notice")
    with failing(relay, "notices"):
        first.call.cancel()
        await relay.ended("site", "lost")
        await turns()
    await relay.clock.advance_async(250)
    assert (await second.next("notice")).job_id == "job-1"


@pytest.mark.parametrize("operation", ["sweep", "next_due_ms"])
async def test_time_goes_on_afterwards(relay: RelayUnderTest, operation: str) -> None:
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await relay.seal(lease)
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    with failing(relay, operation):
        await relay.pass_time(5_000, alive=[stream])
    other = await relay.daemon("runner-2").connect(limit=1)
    await relay.pass_time(56_000, alive=[stream, other])
    # Not by anybody's call: the relay's own timer has let the lease lapse.
    assert (await relay.told(other, "granted")).stub.id == "job-1"


async def test_a_stream_whose_hello_meets_the_failure_is_ended_and_leaves_nothing(
    relay: RelayUnderTest,
) -> None:
    with failing(relay, "renew_leases"):
        stream = relay.daemon().open()
        await relay.daemon().greet(stream, limit=5)
        refusal = await stream.end()
    assert refusal is not None
    _assert_internal(refusal)
    await relay.ended("daemon", "lost")
    assert len(relay.server_of("daemon").relay.daemons) == 0
    await relay.enqueue("job-1")
    await relay.clock.advance_async(1_000)
    assert await relay.state("job-1") == "queued"


Call = Callable[[RelayUnderTest], Any]
CALLS: list[tuple[str, Call]] = [
    ("job", lambda relay: relay.site().refused("GetJob", site_plane_pb2.GetJobRequest(job_id="x"))),
    ("now", lambda relay: relay.site().refused("EnqueueJob", _enqueue(relay))),
    ("notices", lambda relay: relay.site().refused("ListNotices", site_plane_pb2.ListNoticesRequest())),
    ("use_nonce", lambda relay: relay.daemon().refused("GetSites", daemon_plane_pb2.GetSitesRequest())),
]


def _enqueue(relay: RelayUnderTest) -> site_plane_pb2.EnqueueJobRequest:
    return site_plane_pb2.EnqueueJobRequest(stub=relay.stub("job-1"))


@pytest.mark.parametrize(("operation", "call"), CALLS, ids=[case[0] for case in CALLS])
async def test_a_call_tells_nothing_but_an_incident(
    relay: RelayUnderTest, operation: str, call: Call
) -> None:
    with failing(relay, operation):
        _assert_internal(await call(relay))


def _assert_internal(refusal: Refusal) -> None:
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    ((key, incident_id),) = refusal.metadata
    assert key == "incident_id"
    assert refusal.message == f"internal error, incident {incident_id}"
