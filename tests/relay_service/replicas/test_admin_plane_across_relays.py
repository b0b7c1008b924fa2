"""What an operator reads of two relays at the one that devices connect to."""

# ruff: noqa: F403
from sealwork.relay.v1 import admin_pb2
from tests.relay_service.planes.test_admin_plane import *
from tests.relay_service.raw_client import RawOperator
from tests.relay_service.relay_fixture import keys_of
from tests.relay_service.replicas.two_relays import TwoRelays

# Streams are counted by the relay that they are at, so these see half of it. Beside each, the whole.
ONE_RELAY_ALONE = {
    "test_the_counts": "test_each_relay_counts_its_own_streams_and_the_jobs_of_both",
    "test_the_sites": "test_each_relay_lists_the_sites_with_its_own_streams",
}
for name in ONE_RELAY_ALONE:
    del globals()[name]


def test_what_is_left_to_one_relay_has_a_counterpart() -> None:
    assert all(callable(globals()[counterpart]) for counterpart in ONE_RELAY_ALONE.values())


def operators(relay: TwoRelays) -> list[RawOperator]:
    """The operator at the relay of sites, and at that of devices."""
    channels = (relay.channel, relay.device_channel)
    return [RawOperator(channel, "operator", keys_of("operator"), relay.clock.now_ms) for channel in channels]


async def test_each_relay_counts_its_own_streams_and_the_jobs_of_both(relay: TwoRelays) -> None:
    await relay.daemon().connect(limit=0)
    await relay.site().connect(limit=0)
    await relay.enqueue("late")
    seen = []
    for operator in operators(relay):
        stats = (await operator.call("GetStats", admin_pb2.GetStatsRequest())).stats
        seen.append((stats.daemon_sessions, stats.site_sessions))
        # The device named neither of the leases that it held, so their jobs are back in the queue.
        assert (stats.queued_jobs, stats.awaiting_jobs, stats.running_jobs, stats.done_jobs) == (4, 0, 0, 1)
    assert seen == [(0, 1), (1, 0)]


async def test_each_relay_lists_the_sites_with_its_own_streams(relay: TwoRelays) -> None:
    await relay.site().connect(limit=0)
    seen = []
    for operator in operators(relay):
        demo, other = (await operator.call("ListSites", admin_pb2.ListSitesRequest())).sites
        seen.append((demo.sessions, demo.unfinished_jobs, demo.unsettled_notices))
        assert (other.sessions, other.unfinished_jobs, other.unsettled_notices) == (0, 0, 0)
    assert seen == [(1, 3, 2), (0, 3, 2)]
