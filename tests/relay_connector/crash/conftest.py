"""What tests of killed processes are given; each module says which services it shares."""

from collections.abc import AsyncIterator

import pytest

from tests.relay_connector.crash.pair_ground import PairGround


@pytest.fixture
async def ground(pair_of_services: PairGround) -> AsyncIterator[PairGround]:
    yield pair_of_services
    await pair_of_services.dismiss_workers()


@pytest.fixture
def task(ground: PairGround) -> str:
    return ground.next_task()
