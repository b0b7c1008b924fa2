"""Attacks on calls and streams of both planes, over real sockets, with every method tried.

Where each attack is tested, beside those below:

- a stolen runner id without its key: here, and on a stream in streams/test_hello_proofs.py
- another device's lease, another site's job: routes/test_probing.py and planes/test_equal_answers.py
- a replayed hello: streams/test_hello_proofs.py
- a replayed pairing, an expired code, 10,000 starts: test_pairing_attacks.py
- a forged grant, a used grant after a restart, a forged succession: test_device_attacks.py
- a projection with the key of another owner: test_projection_attacks.py
"""

import asyncio
from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.relay_service.planes.scene import (
    DONE,
    HELD,
    SEALED,
    claim,
    complete,
    enqueue,
    release,
    scene,
    seal,
    stub,
)
from tests.relay_service.raw_client import RawParty
from tests.relay_service.relay_fixture import RelayUnderTest, keys_of
from tests.relay_service.replicas.conftest import relay as two_relays
from tests.relay_service.replicas.conftest import serve, valkey

__all__ = ["serve", "two_relays", "valkey"]

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
# A good request of every signed unary method, by its caller in `scene`.
REQUESTS: dict[str, Any] = {
    "EnqueueJob": enqueue(id="new"),
    "EnqueueJobs": site_plane_pb2.EnqueueJobsRequest(stubs=[stub(id="new")]),
    "GetJob": site_plane_pb2.GetJobRequest(job_id="held"),
    "CancelJob": site_plane_pb2.CancelJobRequest(job_id="held"),
    "SealPayload": seal(),
    "ListNotices": site_plane_pb2.ListNoticesRequest(),
    "GetResult": site_plane_pb2.GetResultRequest(job_id="done"),
    "AckResults": site_plane_pb2.AckResultsRequest(job_ids=["done"]),
    "ClaimJobs": claim("another"),
    "RenewLeases": daemon_plane_pb2.RenewLeasesRequest(leases=[HELD, SEALED, DONE]),
    "FetchPayload": daemon_plane_pb2.FetchPayloadRequest(lease=SEALED),
    "CompleteJob": complete(HELD),
    "ReleaseLeases": release(HELD, SEALED),
    "GetSites": daemon_plane_pb2.GetSitesRequest(),
}
UNSIGNED = {"StartPairing", "WatchPairing", "PollPairing", "Session"}


def of_site(method: str) -> bool:
    return method in {each.name for each in _service(site_plane_pb2, "SitePlaneService").methods}


def _service(file: Any, name: str) -> Any:
    return file.DESCRIPTOR.services_by_name[name]


def owner_of(relay: RelayUnderTest, method: str, keys: str = "") -> RawParty:
    """Whose request it is, or somebody in that name with other keys."""
    if of_site(method):
        return relay.site("demo", keys=keys_of(keys or "demo"))
    return relay.daemon("runner-1", keys=keys_of(keys or "runner-1"))


def test_every_method_is_tried() -> None:
    files = ((site_plane_pb2, "SitePlaneService"), (daemon_plane_pb2, "DaemonPlaneService"))
    methods = {method.name for file, name in files for method in _service(file, name).methods}
    assert set(REQUESTS) | UNSIGNED == methods


@pytest.mark.parametrize("thief", ["stranger", "other", "runner-2", "operator"])
@pytest.mark.parametrize("method", REQUESTS)
async def test_a_name_without_its_key_is_worth_nothing(method: str, thief: str) -> None:
    """Whoever else signs: nobody, a site, a device of the same owner, the operator."""
    async with scene() as relay:
        before = await relay.dump()
        refusal = await owner_of(relay, method, thief).refused(method, REQUESTS[method])
        assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, "BAD_SIGNATURE")
        assert await relay.dump() == before


@pytest.mark.parametrize("method", REQUESTS)
async def test_a_recorded_request_is_not_taken_twice(method: str) -> None:
    async with scene() as relay:
        caller, body = owner_of(relay, method), REQUESTS[method].SerializeToString()
        metadata = caller.signed(method, body)
        await caller.call_bytes(method, body, metadata)
        after = await relay.dump()
        refusal = await caller.refused(method, body, metadata)
        assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, "REPLAYED")
        assert await relay.dump() == after


@pytest.mark.parametrize("method", REQUESTS)
async def test_a_signature_is_for_one_method_and_one_body(method: str) -> None:
    async with scene() as relay:
        before = await relay.dump()
        caller, body = owner_of(relay, method), REQUESTS[method].SerializeToString()
        for other in (each for each in REQUESTS if each != method and of_site(each) == of_site(method)):
            refusal = await caller.refused(method, body, caller.signed(other, body))
            assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, "BAD_SIGNATURE"), other
        # One unknown field more: the message means the same, and its bytes are not those that were signed.
        refusal = await caller.refused(method, body + b"\xf8\xff\x07\x01", caller.signed(method, body))
        assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, "BAD_SIGNATURE")
        assert await relay.dump() == before


@pytest.mark.parametrize("version", [None, "0", "2", "one"])
@pytest.mark.parametrize("method", [*REQUESTS, "StartPairing", "PollPairing"])
async def test_a_call_that_names_no_known_version(method: str, version: str | None) -> None:
    async with scene() as relay:
        before = await relay.dump()
        caller = owner_of(relay, method)
        body = REQUESTS[method].SerializeToString() if method in REQUESTS else b""
        metadata = [pair for pair in caller.signed(method, body) if pair[0] != "sealwork-protocol"]
        if version is not None:
            metadata.append(("sealwork-protocol", version))
        refusal = await caller.refused(method, body, metadata)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "UNSUPPORTED_PROTOCOL_VERSION",
        )
        assert refusal.metadata == (("supported", "1"),)
        assert await relay.dump() == before


async def test_a_recorded_request_is_not_taken_by_the_other_relay(two_relays: Any) -> None:
    site, body = two_relays.site(), enqueue(id="job-1").SerializeToString()
    metadata = site.signed("EnqueueJob", body)
    await site.call_bytes("EnqueueJob", body, metadata)
    elsewhere = two_relays.site(channel=two_relays.device_channel)
    assert (await elsewhere.refused("EnqueueJob", body, metadata)).reason == "REPLAYED"


async def test_one_request_sent_many_times_at_once_is_taken_once(two_relays: Any) -> None:
    """At both relays, before either has answered."""
    await two_relays.enqueue("job-1", "job-2")
    body = claim(max_jobs=2).SerializeToString()
    metadata = two_relays.daemon().signed("ClaimJobs", body)
    callers = [two_relays.daemon(channel=channel) for channel in (two_relays.channel, None) * 4]
    answers = await asyncio.gather(
        *(caller.call_bytes("ClaimJobs", body, metadata) for caller in callers), return_exceptions=True
    )
    assert sum(isinstance(answer, bytes) for answer in answers) == 1


# -- a site that is not honest -------------------------------------------------------------


async def test_a_site_cannot_publish_in_the_name_of_another() -> None:
    async with scene() as relay:
        before = await relay.dump()
        refusal = await relay.site("other").refused("EnqueueJob", enqueue(id="new"))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "STUB_SITE_MISMATCH")
        assert await relay.dump() == before


async def test_a_site_cannot_seal_in_the_name_of_another() -> None:
    """Not even its own job: the device would see whose words it cannot have been."""
    async with scene() as relay:
        await relay.site().call("CancelJob", site_plane_pb2.CancelJobRequest(job_id="queued"))
        own = enqueue(id="own", site=keys_of("other").key_id)
        await relay.site("other").call("EnqueueJob", own)
        (granted,) = (await relay.daemon().call("ClaimJobs", claim("own"))).granted
        request = seal("own", granted.lease.id)
        refusal = await relay.site("other").refused("SealPayload", request)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "ENVELOPE_MISDIRECTED",
        )


async def test_a_site_cannot_seal_to_a_device_that_has_not_claimed() -> None:
    async with scene() as relay:
        before = await relay.dump()
        request = seal(recipient_key_id=keys_of("runner-2").key_id)
        refusal = await relay.site().refused("SealPayload", request)
        assert refusal.reason == "ENVELOPE_MISDIRECTED"
        assert await relay.dump() == before


async def test_a_site_cannot_reach_a_person_who_has_not_consented() -> None:
    """Nor find out that the person exists: the answer is that for anybody."""
    async with scene() as relay:
        answers = set()
        for owner in ("alice", "nobody-at-all"):
            request = enqueue(id=f"of-{owner}", owner=owner, kind="llm.chat")
            answer = await relay.site().call("EnqueueJob", request)
            answers.add((answer.state, answer.created))
        assert answers == {(job_pb2.JOB_STATE_QUEUED, True)}
