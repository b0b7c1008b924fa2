"""The tests of grants that a policy authorises, with site and device at two relays on one Valkey server."""

# ruff: noqa: F403
import asyncio
from collections.abc import AsyncIterator

import pytest

from relay_service.planes.policy_client import PolicyClient
from tests.relay_service.planes.scene import claim
from tests.relay_service.policy import test_authorship, test_unary_claims
from tests.relay_service.policy.scripted_policy import PolicyRelay, ScriptedPolicy, agree, not_now
from tests.relay_service.policy.test_authorship import *
from tests.relay_service.policy.test_unary_claims import *
from tests.relay_service.relay_fixture import ref
from tests.relay_service.store.valkey_fixture import TcpServer, empty

# These look into the relay that sites connect to, or go by the names of leases, by news that has
# arrived with the next answer, or by a sweep that is over as soon as the clock of the test has moved.
ONE_RELAY_ALONE = (
    "test_the_question_says_who_won_what",
    "test_declined_for_now_is_asked_again_after_thirty_seconds",
    "test_a_policy_that_is_killed_while_it_is_asked_returns_the_job",
    "test_a_unary_claim_whose_time_is_up_still_gets_what_it_has_won",
    "test_a_claim_that_is_given_up_returns_what_it_has_won",
    "test_what_is_no_answer_counts_as_none",
)
for name in ONE_RELAY_ALONE:
    assert hasattr(test_authorship, name) or hasattr(test_unary_claims, name)
    del globals()[name]


@pytest.fixture
async def asked(valkey: TcpServer) -> AsyncIterator[PolicyRelay]:
    """Two relays that ask the same policy."""
    from tests.relay_service.replicas.two_relays import two_relays

    empty(valkey.url)
    policy = ScriptedPolicy()
    await policy.start()
    client = PolicyClient(policy.address)
    try:
        async with two_relays(valkey.url, policy=client) as relay:
            yield PolicyRelay(relay, policy, client)
    finally:
        policy.gate.set()
        await client.close()
        await policy.stop()


async def test_what_was_declined_for_now_is_asked_about_again(asked: PolicyRelay) -> None:
    relay = asked.relay
    asked.policy.decide = not_now
    stream = await relay.daemon().connect()
    await relay.enqueue("job-1")
    await asked.policy.asked()
    await relay.becomes("job-1", "queued")
    asked.policy.decide = agree
    await relay.pass_time(30_000, alive=[stream])
    await relay.store.sweep()
    assert (await stream.next("granted")).stub.id == "job-1"


async def test_a_claim_that_is_repeated_at_the_other_relay_gets_the_same_grant(asked: PolicyRelay) -> None:
    """Both relays ask; the first answer counts at both."""
    relay = asked.relay
    asked.policy.gate.clear()
    await relay.enqueue("job-1")
    calls = [
        asyncio.create_task(relay.daemon(channel=channel).call("ClaimJobs", claim("again")))
        for channel in (relay.channel, None)
    ]
    await asked.policy.asked(2)
    asked.policy.gate.set()
    first, second = [(await call).granted for call in calls]
    assert [ref(granted) for granted in first] == [ref(granted) for granted in second]
    assert [granted.grant for granted in first] == [granted.grant for granted in second]
    assert len(first) == 1
