from collections.abc import AsyncIterator

import pytest

from tests.relay_service.policy.scripted_policy import PolicyRelay, policy_relay


@pytest.fixture
async def asked() -> AsyncIterator[PolicyRelay]:
    """A relay that asks a policy, which agrees to everything unless a test says otherwise."""
    async with policy_relay() as running:
        yield running
