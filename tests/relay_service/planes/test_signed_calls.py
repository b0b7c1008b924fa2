"""Signed unary calls over a real socket: a replay, a spoilt request, a stale one."""

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, site_plane_pb2
from tests.relay_service.planes.scene import BAD_MARK, claim, enqueue
from tests.relay_service.raw_client import RawParty, Refusal
from tests.relay_service.relay_fixture import RelayUnderTest, keys_of

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


async def refusal(party: RawParty, method: str, body: bytes, metadata: object) -> Refusal:
    answered = await party.refused(method, body, metadata)
    assert answered.code is UNAUTHENTICATED
    return answered


async def test_a_replayed_request_is_refused_and_does_nothing(relay: RelayUnderTest) -> None:
    site, body = relay.site(), enqueue(id="job-1").SerializeToString()
    metadata = site.signed("EnqueueJob", body)
    await site.call_bytes("EnqueueJob", body, metadata)
    await relay.cancel("job-1")
    await site.call("AckResults", site_plane_pb2.AckResultsRequest(job_ids=["job-1"]))
    assert await relay.state("job-1") is None
    assert (await refusal(site, "EnqueueJob", body, metadata)).reason == "REPLAYED"
    assert await relay.state("job-1") is None


async def test_a_replayed_claim_grants_no_more(relay: RelayUnderTest) -> None:
    await relay.enqueue("job-1", "job-2")
    device, body = relay.daemon(), claim().SerializeToString()
    metadata = device.signed("ClaimJobs", body)
    await device.call_bytes("ClaimJobs", body, metadata)
    assert (await refusal(device, "ClaimJobs", body, metadata)).reason == "REPLAYED"
    assert len(await relay.store.held("runner-1")) == 1


async def test_a_nonce_burnt_by_a_stranger_is_still_good(relay: RelayUnderTest) -> None:
    site, body = relay.site(), site_plane_pb2.CancelJobRequest(job_id="x").SerializeToString()
    metadata = dict(site.signed("CancelJob", body))
    forged = metadata | {"sealwork-signature": "A" * 86}
    assert (await refusal(site, "CancelJob", body, tuple(forged.items()))).reason == "BAD_SIGNATURE"
    await site.call_bytes("CancelJob", body, tuple(metadata.items()))


@pytest.mark.parametrize("spoilt", ["body", "method", "caller", "plane"])
async def test_a_signature_holds_for_one_request_alone(relay: RelayUnderTest, spoilt: str) -> None:
    site, body = relay.site(), site_plane_pb2.GetJobRequest(job_id="x").SerializeToString()
    metadata, method = site.signed("GetJob", body), "GetJob"
    party: RawParty = site
    match spoilt:
        case "body":
            body = site_plane_pb2.GetJobRequest(job_id="y").SerializeToString()
        case "method":
            method = "CancelJob"
        case "caller":
            metadata = tuple((key, "other" if key == "sealwork-caller" else value) for key, value in metadata)
        case _:
            party, method = relay.daemon("demo", keys=keys_of("demo")), "GetSites"
    assert (await refusal(party, method, body, metadata)).reason == "BAD_SIGNATURE"


async def test_a_request_from_two_minutes_ago_or_ahead(relay: RelayUnderTest) -> None:
    site, body = relay.site(), site_plane_pb2.CancelJobRequest(job_id="x").SerializeToString()
    early = site.signed("CancelJob", body)
    again = site.signed("CancelJob", body)
    await relay.clock.advance_async(120_000)
    await site.call_bytes("CancelJob", body, early)
    await relay.clock.advance_async(1)
    stale = await refusal(site, "CancelJob", body, again)
    assert stale.reason == "CLOCK_SKEW"
    assert dict(stale.metadata) == {
        "server_time_ms": str(relay.clock.now_ms()),
        "max_skew_ms": "120000",
    }


async def test_nobody_unknown_reaches_the_parser(relay: RelayUnderTest) -> None:
    stranger = relay.site("demo", keys=keys_of("stranger"))
    body = b"\xff\xff\xff" + BAD_MARK.encode()
    assert (await stranger.refused("GetJob", body)).reason == "BAD_SIGNATURE"


async def test_a_device_of_the_name_of_a_site_is_none(relay: RelayUnderTest) -> None:
    device = relay.daemon("demo", keys=keys_of("demo"))
    answered = await device.refused("GetSites", daemon_plane_pb2.GetSitesRequest())
    assert answered.reason == "BAD_SIGNATURE"
