"""What an operator sees is the same at every relay on one store."""

from typing import Any

import pytest

from sealwork.relay.v1 import admin_pb2
from tests.harness.waiting import eventually
from tests.relay_service.planes.wasted_windows import reports, waste_windows
from tests.relay_service.raw_client import RawOperator
from tests.relay_service.relay_fixture import keys_of
from tests.relay_service.replicas.two_relays import TwoRelays


def operators(relay: TwoRelays) -> list[RawOperator]:
    """The operator at each of the relays."""
    channels = (relay.channel, relay.device_channel)
    return [RawOperator(channel, "operator", keys_of("operator"), relay.clock.now_ms) for channel in channels]


def counted(relay: TwoRelays) -> float:
    """How often both relays together have counted a site that wastes windows."""
    servers = (relay.server, relay.device_server)
    return sum(server.metrics.value("relay_unsealed_churn_total") for server in servers)


@pytest.mark.parametrize("noticed_by", [0, 1])
async def test_churn_is_reported_once_however_many_relays_there_are(
    relay: TwoRelays, noticed_by: int
) -> None:
    await waste_windows(relay, "alice", relay.stores[noticed_by])
    await eventually(lambda: counted(relay) == 1)
    # The other relay goes on where the first has stopped, within the hour.
    await waste_windows(relay, "alice", relay.stores[1 - noticed_by])
    for store in relay.stores:
        await store.delivered()
    first, second = [await reports(operator) for operator in operators(relay)]
    assert [(each.site_id, each.owner, each.expiries) for each in first] == [("demo", "alice", 6)]
    assert first == second
    assert counted(relay) == 1


async def test_the_age_of_the_oldest_job_is_the_same_at_both(relay: TwoRelays) -> None:
    await relay.enqueue("job-1")
    await relay.clock.advance_async(4_000)
    ages: list[Any] = []
    for operator in operators(relay):
        answer = await operator.call("GetStats", admin_pb2.GetStatsRequest())
        ages.append(answer.stats.oldest_queued.ToMilliseconds())
    assert ages == [4_000, 4_000]
