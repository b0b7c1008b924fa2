import sys
from collections.abc import Callable

import pytest

from bench.our_relay.drain import Backlog, Drain
from bench.our_relay.jobs import OurSessionJobs
from bench.our_relay.server import Deployment, OurServer
from bench.our_relay.two_relays import TwoRelays
from bench.peer_relay.pair import JobLoad
from bench.variant import VariantFailedError, VariantUnavailableError
from tests.relay_service.store.valkey_fixture import require_valkey

pytestmark = pytest.mark.process

BACKLOG = Backlog(jobs=36, devices=6, sites=2, slots=3)


async def test_jobs_cross_from_relay_to_relay() -> None:
    require_valkey()
    variant = OurSessionJobs("two", JobLoad(1024, workers=2, in_flight=3), server=TwoRelays())
    try:
        await variant.start()
        burst = await variant.burst(0.2)
    finally:
        await variant.stop()
    assert burst.operations > 0
    assert burst.failures == 0


@pytest.mark.parametrize("deployment", [OurServer, TwoRelays])
async def test_the_queue_is_drained_once_a_burst(deployment: Callable[[], Deployment]) -> None:
    if deployment is TwoRelays:
        require_valkey()
    variant = Drain("drain", deployment(), BACKLOG)
    try:
        await variant.start()
        for _ in range(2):
            burst = await variant.burst(60.0)
            assert (burst.operations, burst.failures) == (36, 0)
            assert len(burst.latencies_ms) == 36
            assert max(burst.latencies_ms) <= burst.elapsed_seconds * 1000
    finally:
        await variant.stop()


async def test_a_queue_that_is_not_drained_in_time_is_a_failure() -> None:
    variant = Drain("drain", OurServer(), BACKLOG)
    try:
        await variant.start()
        with pytest.raises(VariantFailedError, match="36 of 36 jobs were left"):
            await variant.burst(0.0)
    finally:
        await variant.stop()


async def test_two_relays_need_a_valkey_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "relay_service.store.embedded_valkey", None)
    variant = Drain("drain", TwoRelays(), BACKLOG)
    with pytest.raises(VariantUnavailableError, match="needs the extra"):
        await variant.start()
    await variant.stop()
