"""Nobody can tell another's job from one that never was."""

from typing import Any

import grpc
import grpc.aio
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.relay_service.planes.scene import DONE, HELD, SEALED, complete, release, scene
from tests.relay_service.planes.twins import ask_on_stream
from tests.relay_service.raw_client import RawParty, Refusal
from tests.relay_service.relay_fixture import RelayUnderTest, Serve, keys_of

Ref = job_pb2.LeaseRef
NEVER_WAS = "no-such-job"
JOBS = ("queued", "held", "sealed", "done")
SITE_METHODS = ("GetJob", "CancelJob", "GetResult", "SealPayload", "AckResults")


def of_site(method: str, relay: RelayUnderTest, job_id: str, lease_id: str) -> Any:
    """A request of site other about a job, perfect but for the job's not being its own."""
    match method:
        case "SealPayload":
            envelope = relay.payload(sender_key_id=keys_of("other").key_id)
            return site_plane_pb2.SealPayloadRequest(job_id=job_id, lease_id=lease_id, envelope=envelope)
        case "AckResults":
            return site_plane_pb2.AckResultsRequest(job_ids=[job_id])
        case _:
            kinds: dict[str, Any] = {
                "GetJob": site_plane_pb2.GetJobRequest,
                "CancelJob": site_plane_pb2.CancelJobRequest,
                "GetResult": site_plane_pb2.GetResultRequest,
            }
            return kinds[method](job_id=job_id)


async def answer(party: RawParty, method: str, request: Any) -> Any:
    """What a caller sees of an answer, all of it."""
    try:
        return await party.call(method, request)
    except grpc.aio.AioRpcError as error:
        refusal = Refusal.of_call(error.code(), error.trailing_metadata())
        return refusal, error.details(), sorted(error.initial_metadata() or ())


@pytest.mark.parametrize("method", SITE_METHODS)
async def test_another_sites_job(method: str, serve: Serve) -> None:
    async with scene(serve) as relay:
        before = await relay.dump()
        site = relay.site("other")
        stream = await site.connect(limit=0)
        leases = {lease.job_id: lease.lease_id for lease in (HELD, SEALED, DONE)}
        unknown = await answer(site, method, of_site(method, relay, NEVER_WAS, "lease-1"))
        reply = await ask_on_stream(stream, method, of_site(method, relay, NEVER_WAS, "lease-1"))
        for job_id in JOBS:
            request = of_site(method, relay, job_id, leases.get(job_id, "lease-1"))
            assert await answer(site, method, request) == unknown, job_id
            assert await ask_on_stream(stream, method, request) == reply, job_id
        assert await relay.dump() == before


async def test_another_sites_notices(serve: Serve) -> None:
    async with scene(serve) as relay:
        before = await relay.dump()
        rows = await relay.store.notices("demo", 0, 10)
        site = relay.site("other")
        listed = await site.call("ListNotices", site_plane_pb2.ListNoticesRequest())
        assert not listed.notices
        ack = site_plane_pb2.AckResultsRequest(notice_ids=[row.notice_id for row in rows], job_ids=JOBS)
        assert not (await site.call("AckResults", ack)).settled_ids
        assert await relay.dump() == before


async def test_a_job_id_of_another_site_is_free(serve: Serve) -> None:
    """And its own job does not change what the other site sees of its job."""
    async with scene(serve) as relay:
        stub = relay.stub("done", site=keys_of("other").key_id)
        request = site_plane_pb2.EnqueueJobRequest(stub=stub)
        assert (await relay.site("other").call("EnqueueJob", request)).created
        get = site_plane_pb2.GetJobRequest(job_id="done")
        assert (await relay.site("other").call("GetJob", get)).state == job_pb2.JOB_STATE_QUEUED
        assert (await relay.site().call("GetJob", get)).state == job_pb2.JOB_STATE_DONE


@pytest.mark.parametrize("method", ["FetchPayload", "CompleteJob", "ReleaseLeases", "RenewLeases"])
async def test_a_job_that_another_device_holds(method: str, serve: Serve) -> None:
    """Without its lease, which nobody can guess, it is a job that never was."""
    async with scene(serve) as relay:
        before = await relay.dump()
        device = relay.daemon("runner-2")
        stream = await device.connect(limit=0)

        def ask(job_id: str) -> Any:
            lease = Ref(job_id=job_id, lease_id="guessed")
            match method:
                case "FetchPayload":
                    return daemon_plane_pb2.FetchPayloadRequest(lease=lease)
                case "CompleteJob":
                    return complete(lease, sender_key_id=keys_of("runner-2").key_id)
                case "ReleaseLeases":
                    return release(lease)
                case _:
                    return daemon_plane_pb2.RenewLeasesRequest(leases=[lease])

        unknown = _without_names(await answer(device, method, ask(NEVER_WAS)))
        for job_id in JOBS:
            assert _without_names(await answer(device, method, ask(job_id))) == unknown, job_id
            if method != "RenewLeases":
                reply = await ask_on_stream(stream, method, ask(job_id))
                assert reply == await ask_on_stream(stream, method, ask(NEVER_WAS)), job_id
        assert await relay.dump() == before


def _without_names(answered: Any) -> str:
    """The answer without the caller's own words in it."""
    text = repr(answered)
    for name in (NEVER_WAS, *JOBS):
        text = text.replace(f'job_id: "{name}"', "job_id")
    return text


async def test_even_with_its_lease_the_job_stays_the_others(serve: Serve) -> None:
    async with scene(serve) as relay:
        before = await relay.dump()
        device = relay.daemon("runner-2")
        for request, method in (
            (daemon_plane_pb2.FetchPayloadRequest(lease=SEALED), "FetchPayload"),
            (complete(HELD, sender_key_id=keys_of("runner-2").key_id), "CompleteJob"),
        ):
            refusal = await device.refused(method, request)
            assert (refusal.code, refusal.reason) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "NOT_LEASE_HOLDER",
            )
        assert not (await device.call("ReleaseLeases", release(HELD, SEALED))).job_ids
        renewed = await device.call(
            "RenewLeases", daemon_plane_pb2.RenewLeasesRequest(leases=[HELD, SEALED, DONE])
        )
        assert {verdict.state for verdict in renewed.verdicts} == {job_pb2.LEASE_STATE_LOST}
        assert {verdict.end_reason for verdict in renewed.verdicts} == {0}
        assert await relay.dump() == before


async def test_unknown_callers_and_wrong_keys_get_one_answer(serve: Serve) -> None:
    async with scene(serve) as relay:
        for party, known in ((relay.site, "demo"), (relay.daemon, "runner-1")):
            refusals = set()
            for name, keys in ((known, "someone"), ("nobody", "someone"), ("nobody", known)):
                caller: RawParty = party(name, keys=keys_of(keys))
                method = "GetJob" if known == "demo" else "GetSites"
                request: Any = (
                    site_plane_pb2.GetJobRequest(job_id="held")
                    if known == "demo"
                    else daemon_plane_pb2.GetSitesRequest()
                )
                refusals.add(await caller.refused(method, request))
            (refusal,) = refusals
            assert (refusal.code, refusal.reason) == (
                grpc.StatusCode.UNAUTHENTICATED,
                "BAD_SIGNATURE",
            )
