"""Bad requests: refused with the field at fault, alike by unary call and on the stream, changing nothing."""

from collections.abc import AsyncIterator
from itertools import groupby
from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.relay_service.planes.bad_requests import ADMIN, DAEMON, SITE, Bad, everything
from tests.relay_service.planes.scene import (
    BAD_MARK,
    HELD,
    SEALED,
    claim,
    complete,
    enqueue,
    not_utf8,
    release,
    scene,
    seal,
)
from tests.relay_service.planes.twins import TWINS, ask_on_stream, caller
from tests.relay_service.raw_client import DOMAIN, RawStream, Refusal, message_type
from tests.relay_service.relay_fixture import RelayUnderTest

Ref = job_pb2.LeaseRef


@pytest.fixture(scope="module")
async def relay() -> AsyncIterator[RelayUnderTest]:
    """One relay for all of it: nothing that is asked here may change anything."""
    async with scene() as running:
        yield running


@pytest.fixture(scope="module")
async def streams(relay: RelayUnderTest) -> dict[str, RawStream]:
    """A stream of either plane, of parties that are no others' business."""
    device = await relay.daemon().connect(limit=0, inventory={"leases": [HELD, SEALED]})
    return {DAEMON: device, SITE: await relay.site().connect(limit=0)}


def tables() -> list[Any]:
    ordered = sorted(everything(), key=lambda bad: (bad.service, bad.method))
    groups = groupby(ordered, key=lambda bad: bad.method)
    return [pytest.param(list(group), id=name) for name, group in groups]


@pytest.mark.parametrize("cases", tables())
async def test_every_bad_request_is_refused_by_name_and_changes_nothing(
    relay: RelayUnderTest, streams: dict[str, RawStream], cases: list[Bad]
) -> None:
    before = await relay.dump()
    for bad in cases:
        refusal = await caller(relay, bad.service).refused(bad.method, bad.request)
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT, bad
        assert (refusal.reason, refusal.domain) == (bad.reason, DOMAIN), bad
        assert refusal.metadata == bad.metadata, bad
        assert not bad.field or bad.field in refusal.fields, (bad, refusal.fields)
        assert bool(refusal.fields) == (bad.reason in {"FIELD_INVALID", "ENVELOPE_TOO_LARGE"}), bad
        if bad.method in TWINS and bad.reason != "ENVELOPE_TOO_LARGE":
            answer = await ask_on_stream(streams[bad.service], bad.method, bad.request)
            assert Refusal.of_status(answer.error) == refusal, bad
    assert await relay.dump() == before


def test_the_table_covers_every_method_that_takes_anything() -> None:
    covered = {bad.method for bad in everything()}
    methods = {
        method.name
        for service in (SITE, DAEMON, ADMIN)
        for method in message_type(
            service, "GetSites" if service == DAEMON else "GetJob" if service == SITE else "GetStats"
        )
        .DESCRIPTOR.file.services_by_name[service]
        .methods
    }
    pairing = {"StartPairing", "WatchPairing", "PollPairing"}
    without_fields = {"GetSites", "GetStats"}
    # Streams have tests of their own.
    assert methods - covered == pairing | without_fields | {"Session", "Watch"}


TEXTS = [
    (SITE, "EnqueueJob", enqueue(id=BAD_MARK)),
    (SITE, "EnqueueJobs", site_plane_pb2.EnqueueJobsRequest(stubs=[enqueue(owner=BAD_MARK).stub])),
    (SITE, "GetJob", site_plane_pb2.GetJobRequest(job_id=BAD_MARK)),
    (SITE, "CancelJob", site_plane_pb2.CancelJobRequest(job_id=BAD_MARK)),
    (SITE, "SealPayload", seal(sender_key_id=BAD_MARK)),
    (SITE, "ListNotices", site_plane_pb2.ListNoticesRequest(page_token=BAD_MARK)),
    (SITE, "GetResult", site_plane_pb2.GetResultRequest(job_id=BAD_MARK)),
    (SITE, "AckResults", site_plane_pb2.AckResultsRequest(job_ids=[BAD_MARK])),
    (DAEMON, "ClaimJobs", claim(BAD_MARK)),
    (DAEMON, "RenewLeases", daemon_plane_pb2.RenewLeasesRequest(leases=[Ref(job_id=BAD_MARK)])),
    (DAEMON, "FetchPayload", daemon_plane_pb2.FetchPayloadRequest(lease=Ref(lease_id=BAD_MARK))),
    (DAEMON, "CompleteJob", complete(recipient_key_id=BAD_MARK)),
    (DAEMON, "ReleaseLeases", release(Ref(job_id=BAD_MARK))),
]


@pytest.mark.parametrize(("service", "method", "request_"), TEXTS, ids=[case[1] for case in TEXTS])
async def test_text_that_is_not_utf_8(
    relay: RelayUnderTest, streams: dict[str, RawStream], service: str, method: str, request_: Any
) -> None:
    before = await relay.dump()
    for body in (not_utf8(request_), b"\xff\xff\xff"):
        refusal = await caller(relay, service).refused(method, body)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    await streams[service].settle()
    assert await relay.dump() == before


@pytest.mark.parametrize("service", [SITE, DAEMON])
async def test_the_longest_names_of_any_script_are_fine(relay: RelayUnderTest, service: str) -> None:
    name = "\N{OGHAM SPACE MARK}é漢😀" * 32
    assert len(name) == 128
    if service == SITE:
        refusal = await relay.site().refused("GetJob", site_plane_pb2.GetJobRequest(job_id=name))
    else:
        fetch = daemon_plane_pb2.FetchPayloadRequest(lease=Ref(job_id=name, lease_id=name))
        refusal = await relay.daemon().refused("FetchPayload", fetch)
    assert refusal.reason == "JOB_NOT_FOUND"


async def test_many_faults_are_all_named_at_once(relay: RelayUnderTest) -> None:
    bad = site_plane_pb2.EnqueueJobRequest()
    refusal = await relay.site().refused("EnqueueJob", bad)
    assert set(refusal.fields) == {
        "stub.id",
        "stub.kind",
        "stub.owner",
        "stub.site",
        "stub.audience",
        "stub.size_class",
        "stub.deadline_time",
    }


async def test_one_bad_stub_of_several_is_refused_alone() -> None:
    async with scene() as relay:
        stubs = [enqueue(id="a").stub, enqueue(id="b", kind="").stub, enqueue(id="c").stub]
        answer = await relay.site().call("EnqueueJobs", site_plane_pb2.EnqueueJobsRequest(stubs=stubs))
        assert [result.WhichOneof("outcome") for result in answer.results] == [
            "enqueued",
            "error",
            "enqueued",
        ]
        assert Refusal.of_status(answer.results[1].error).fields == ("stubs[1].kind",)
        assert [await relay.state(job_id) for job_id in "abc"] == ["queued", None, "queued"]
