"""What a stub can say is written down here, and nothing else of it is kept or handed on."""

from dataclasses import fields

from relay_service.core.model import JobStub
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.relay_service.planes.scene import claim
from tests.relay_service.relay_fixture import RelayUnderTest

STUB = ["id", "kind", "owner", "site", "audience", "purpose", "size_class", "streaming", "deadline_time"]


def test_a_stub_has_these_fields() -> None:
    assert [field.name for field in job_pb2.JobStub.DESCRIPTOR.fields] == STUB
    # As the relay keeps it.
    kept = {"deadline_at_ms" if name == "deadline_time" else name for name in STUB}
    assert {field.name for field in fields(JobStub)} == kept


def test_a_job_is_published_by_its_stub_alone() -> None:
    for message, field in (
        (site_plane_pb2.EnqueueJobRequest, "stub"),
        (site_plane_pb2.EnqueueJobsRequest, "stubs"),
    ):
        assert [each.name for each in message.DESCRIPTOR.fields] == [field]


def test_a_grant_adds_the_lease_and_the_signed_grant() -> None:
    assert [field.name for field in daemon_plane_pb2.Granted.DESCRIPTOR.fields] == ["stub", "lease", "grant"]


async def test_what_a_stub_says_beyond_its_fields_is_dropped(any_relay: RelayUnderTest) -> None:
    """A field that the relay does not know may hold anything, a prompt included."""
    known = any_relay.stub("job-1").SerializeToString()
    # Field 99 of the stub, a text of 15 bytes; the stub's own length takes two.
    stub = known + b"\x9a\x06\x0fthe whole words"
    request = b"\x0a" + bytes([len(stub) & 0x7F | 0x80, len(stub) >> 7]) + stub
    site = any_relay.site()
    await site.call("EnqueueJob", request)
    body = claim().SerializeToString()
    daemon = any_relay.daemon()
    answer = await daemon.call_bytes("ClaimJobs", body, daemon.signed("ClaimJobs", body))
    assert b"whole" not in answer
    assert daemon_plane_pb2.ClaimJobsResponse.FromString(answer).granted[0].stub == any_relay.stub("job-1")
    shown = await site.call("GetJob", site_plane_pb2.GetJobRequest(job_id="job-1"))
    assert b"whole" not in shown.SerializeToString()
