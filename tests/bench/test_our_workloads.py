from collections.abc import Callable

import pytest

from bench.our_relay.connected_relay import ConnectedRelay
from bench.our_relay.jobs import OurSessionJobs, OurUnaryJobs
from bench.our_relay.latencies import OurHandlerCancels, OurNoticeCancels, OurStarts
from bench.our_relay.renewals import OurRenewals
from bench.peer_relay.pair import JobLoad
from bench.variant import BurstResult, Variant, VariantUnavailableError

pytestmark = pytest.mark.process

SMALL = JobLoad(payload_bytes=1024, workers=2, in_flight=3)
LARGE = JobLoad(payload_bytes=65_536, workers=2)


async def one_burst(variant: Variant, seconds: float = 0.2) -> BurstResult:
    try:
        await variant.start()
        return await variant.burst(seconds)
    finally:
        await variant.stop()


@pytest.mark.parametrize(
    "variant",
    [
        lambda: OurSessionJobs("sessions", SMALL),
        lambda: OurSessionJobs("one site", SMALL, sites=1),
        lambda: OurSessionJobs("large", LARGE),
        lambda: OurUnaryJobs("unary", SMALL),
        lambda: OurUnaryJobs("large, unary", LARGE),
    ],
)
async def test_jobs_come_through_and_are_checked(variant: Callable[[], Variant]) -> None:
    burst = await one_burst(variant())
    assert burst.operations > 0
    assert len(burst.latencies_ms) == burst.operations
    assert burst.failures == 0
    assert burst.server_rss_kib > 1_000


async def test_devices_renew_what_they_hold() -> None:
    memory: list[float] = []
    variant = OurRenewals("renewals", 12, 0.1, memory.append)
    answered = 0
    try:
        await variant.start()
        # More than one each. How many bursts that takes is the machine's affair.
        while answered <= 12:
            burst = await variant.burst(0.5)
            assert burst.failures == 0
            answered += burst.operations
    finally:
        await variant.stop()
    assert len(memory) == 1


async def test_latencies_of_single_jobs_on_one_relay() -> None:
    relay = ConnectedRelay(3)
    variants: list[Variant] = [
        OurNoticeCancels("notice", relay, 3),
        OurHandlerCancels("handler", relay, 3),
        OurStarts("start", relay, 3),
    ]
    try:
        for variant in variants:
            await variant.start()
        for variant in variants:
            burst = await variant.burst(20.0)
            assert (burst.operations, len(burst.latencies_ms), burst.failures) == (3, 3, 0)
    finally:
        for variant in variants:
            await variant.stop()


async def test_a_relay_that_did_not_start_is_unavailable_to_all_that_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.our_relay.server._SETTINGS", ("--no-such-option",))
    relay = ConnectedRelay(2)
    first, second = OurStarts("first", relay, 1), OurStarts("second", relay, 1)
    with pytest.raises(VariantUnavailableError, match="no-such-option"):
        await first.start()
    with pytest.raises(VariantUnavailableError, match="did not start"):
        await second.start()
    await second.stop()
    await first.stop()
