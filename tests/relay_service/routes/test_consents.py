"""Who a job can reach: two consents to one site, the job's audience, and the rosters of others."""

from dataclasses import replace
from typing import Any

import pytest

from relay_service.core.projection import Consent, Roster
from sealwork.relay.v1 import job_pb2
from tests.relay_service.planes.scene import claim
from tests.relay_service.raw_client import RawStream, row
from tests.relay_service.relay_fixture import PROJECTION, RelayUnderTest

TEAM, PRIVATE = job_pb2.AUDIENCE_TEAM, job_pb2.AUDIENCE_PRIVATE
BOTH = (Consent("alice", "demo"), Consent("bob", "demo"))
FRIENDS = (Roster("friends", "bob", ("alice",)),)
NOBODY = frozenset[str]()
OWN = frozenset({"runner-1"})
OTHERS_TOO = frozenset({"runner-1", "runner-b"})

# A job of alice's for site demo; runner-1 is alice's device and runner-b bob's.
CASES: dict[str, tuple[dict[str, Any], Any, frozenset[str]]] = {
    "both consent and bob admits alice": ({}, TEAM, OTHERS_TOO),
    "a private job": ({}, PRIVATE, OWN),
    "only the job's owner consents": ({"consents": BOTH[:1]}, TEAM, OWN),
    "only the device's owner consents": ({"consents": BOTH[1:]}, TEAM, NOBODY),
    "the device's owner consents to another site": (
        {"consents": (BOTH[0], Consent("bob", "other"))},
        TEAM,
        OWN,
    ),
    "the job's owner consents to another site": (
        {"consents": (Consent("alice", "other"), BOTH[1])},
        TEAM,
        NOBODY,
    ),
    "the job's owner has paused": ({"consents": (Consent("alice", "demo", True), BOTH[1])}, TEAM, NOBODY),
    "the device's owner has paused": ({"consents": (BOTH[0], Consent("bob", "demo", True))}, TEAM, OWN),
    "the job's owner has revoked": ({"revoked": (("alice", "demo"),)}, TEAM, NOBODY),
    "the device's owner has revoked": ({"revoked": (("bob", "demo"),)}, TEAM, OWN),
    "nobody consents": ({"consents": ()}, TEAM, NOBODY),
    "no roster": ({"rosters": ()}, TEAM, OWN),
    "a roster the other way round": ({"rosters": (Roster("friends", "alice", ("bob",)),)}, TEAM, OWN),
    "a roster of somebody else": ({"rosters": (Roster("friends", "carol", ("alice", "bob")),)}, TEAM, OWN),
    "a roster that names alice among others": (
        {"rosters": (Roster("a", "bob", ("dora",)), Roster("b", "bob", ("erin", "alice")))},
        TEAM,
        OTHERS_TOO,
    ),
}


def named(only: str = "") -> list[Any]:
    return [pytest.param(*case, id=name) for name, case in CASES.items() if only in name]


async def granted(relay: RelayUnderTest, stream: RawStream) -> bool:
    """Whether the stream has been granted the job, when everything that was under way has come."""
    await stream.settle()
    return bool(stream.take("granted"))


@pytest.mark.parametrize(("parts", "audience", "reached"), named())
async def test_whom_a_claim_serves(
    any_relay: RelayUnderTest, parts: dict[str, Any], audience: Any, reached: frozenset[str]
) -> None:
    """Each device asks alone, as if it were the only one."""
    any_relay.source.replace(replace(PROJECTION, **parts))
    served = set()
    for runner_id in ("runner-b", "runner-1"):
        await any_relay.enqueue(f"for-{runner_id}", audience=audience)
        answer = await any_relay.daemon(runner_id).call("ClaimJobs", claim(runner_id))
        served |= {runner_id} if answer.granted else set()
        await any_relay.cancel(f"for-{runner_id}")
    assert served == reached


@pytest.mark.parametrize(("parts", "audience", "reached"), named())
async def test_whom_a_stream_serves(
    relay: RelayUnderTest, parts: dict[str, Any], audience: Any, reached: frozenset[str]
) -> None:
    """A device that waited before the job was there, with no other device around."""
    relay.source.replace(replace(PROJECTION, **parts))
    served = set()
    for runner_id in ("runner-b", "runner-1"):
        stream = await relay.daemon(runner_id).connect(limit=1)
        await stream.settle()
        await relay.enqueue(f"for-{runner_id}", audience=audience)
        served |= {runner_id} if await granted(relay, stream) else set()
        await relay.cancel(f"for-{runner_id}")
        stream.call.cancel()
    assert served == reached


async def test_a_private_job_waits_for_its_owners_device(any_relay: RelayUnderTest) -> None:
    """However long another's device asks, and whatever rosters say."""
    other = await any_relay.daemon("runner-b").connect(limit=5)
    await other.settle()
    await any_relay.enqueue("own", audience=PRIVATE)
    await any_relay.enqueue("shared")
    assert (await other.next("granted")).stub.id == "shared"
    await other.settle()
    assert not other.take("granted")
    own = await any_relay.daemon("runner-1").connect(limit=5)
    assert (await own.next("granted")).stub.id == "own"


async def test_a_roster_opens_and_closes_a_route_at_once(any_relay: RelayUnderTest) -> None:
    any_relay.source.replace(replace(PROJECTION, rosters=()))
    stream = await any_relay.daemon("runner-b").connect(limit=5)
    await any_relay.enqueue("first")
    assert not await granted(any_relay, stream)
    any_relay.source.replace(PROJECTION)
    assert (await stream.next("granted")).stub.id == "first"
    any_relay.source.replace(replace(PROJECTION, rosters=()))
    await any_relay.enqueue("second")
    assert not await granted(any_relay, stream)


async def test_a_roster_is_one_way(any_relay: RelayUnderTest) -> None:
    """Bob takes alice's work; alice does not take bob's."""
    await any_relay.enqueue("bobs", owner="bob")
    assert not (await any_relay.daemon("runner-1").call("ClaimJobs", claim("alice"))).granted
    assert (await any_relay.daemon("runner-b").call("ClaimJobs", claim("bob"))).granted


async def test_a_claim_names_its_kinds_anew_each_time(any_relay: RelayUnderTest) -> None:
    """What a device could do when it asked before means nothing."""
    await any_relay.enqueue("job-1")
    device = any_relay.daemon("runner-1")
    await device.connect(limit=0)
    answer = await device.call("ClaimJobs", claim("chat", matrix=[row("llm.chat")]))
    assert not answer.granted
    assert (await device.call("ClaimJobs", claim("generate"))).granted
