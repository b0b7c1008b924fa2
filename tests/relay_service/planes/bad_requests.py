"""Requests that break a rule, each with the refusal that it gets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sealwork.relay.v1 import admin_pb2, daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.relay_service.planes.scene import (
    BAD_IDS,
    HELD,
    claim,
    complete,
    enqueue,
    leases,
    release,
    seal,
    stub,
)
from tests.relay_service.raw_client import row
from tests.relay_service.relay_fixture import START_MS, keys_of, timestamp

SITE, DAEMON, ADMIN = "SitePlaneService", "DaemonPlaneService", "RelayAdminService"
SIX_MIB = 6_291_456
Ref = job_pb2.LeaseRef


@dataclass(frozen=True)
class Bad:
    """A request of a method and how it is refused: INVALID_ARGUMENT with this reason, naming this field."""

    service: str
    method: str
    request: Any
    field: str
    what: str
    reason: str = "FIELD_INVALID"
    metadata: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.method}-{self.field}-{self.what}".replace(" ", "_")


def everything() -> list[Bad]:
    parts = (identifiers, counts, enums, times, missing, envelopes, pages)
    return [bad for part in parts for bad in part()]


def identifiers() -> Iterator[Bad]:
    """Every text that names something, each with every kind of bad name."""
    for what, bad in BAD_IDS.items():
        lease = Ref(job_id=bad, lease_id="l"), Ref(job_id="j", lease_id=bad)
        for field in ("id", "kind", "owner", "site", "purpose"):
            yield Bad(SITE, "EnqueueJob", enqueue(**{field: bad}), f"stub.{field}", what)
        for name, kind in (
            ("GetJob", site_plane_pb2.GetJobRequest),
            ("CancelJob", site_plane_pb2.CancelJobRequest),
            ("GetResult", site_plane_pb2.GetResultRequest),
        ):
            yield Bad(SITE, name, kind(job_id=bad), "job_id", what)
        yield Bad(SITE, "SealPayload", seal(job_id=bad), "job_id", what)
        yield Bad(SITE, "SealPayload", seal(lease_id=bad), "lease_id", what)
        ack = site_plane_pb2.AckResultsRequest
        yield Bad(SITE, "AckResults", ack(job_ids=["done", bad]), "job_ids[1]", what)
        yield Bad(SITE, "AckResults", ack(notice_ids=[bad]), "notice_ids[0]", what)
        for party in ("recipient_key_id", "sender_key_id"):
            yield Bad(SITE, "SealPayload", seal(**{party: bad}), f"envelope.{party}", what)
            yield Bad(DAEMON, "CompleteJob", complete(**{party: bad}), f"envelope.{party}", what)
        for field, ref in zip(("job_id", "lease_id"), lease, strict=True):
            fetch = daemon_plane_pb2.FetchPayloadRequest(lease=ref)
            yield Bad(DAEMON, "FetchPayload", fetch, f"lease.{field}", what)
            yield Bad(DAEMON, "CompleteJob", complete(ref), f"lease.{field}", what)
            yield Bad(DAEMON, "ReleaseLeases", release(HELD, ref), f"leases[1].{field}", what)
            renew = daemon_plane_pb2.RenewLeasesRequest(leases=[HELD, ref])
            yield Bad(DAEMON, "RenewLeases", renew, f"leases[1].{field}", what)
        yield Bad(DAEMON, "ClaimJobs", claim(bad), "request_id", what)
        for field in ("kind", "service", "backend_id", "model"):
            bad_row = row()
            setattr(bad_row, field, bad)
            yield Bad(DAEMON, "ClaimJobs", claim(matrix=[bad_row]), f"matrix[0].{field}", what)
        bad_row = row()
        bad_row.known_models.extend(["good", bad])
        yield Bad(DAEMON, "ClaimJobs", claim(matrix=[bad_row]), "matrix[0].known_models[1]", what)
        if bad:
            yield Bad(ADMIN, "ListJobs", admin_pb2.ListJobsRequest(site_id=bad), "site_id", what)


def counts() -> Iterator[Bad]:
    """Lists of none, of too many, and with one thing twice."""
    some = site_plane_pb2.EnqueueJobsRequest
    yield Bad(SITE, "EnqueueJobs", some(), "stubs", "none")
    many = [stub(id=f"job-{number}") for number in range(101)]
    yield Bad(SITE, "EnqueueJobs", some(stubs=many), "stubs", "101")
    yield Bad(SITE, "EnqueueJobs", some(stubs=[stub(id="a"), stub(id="b"), stub(id="a")]), "stubs", "twice")
    ack = site_plane_pb2.AckResultsRequest
    ids = [f"id-{number}" for number in range(501)]
    yield Bad(SITE, "AckResults", ack(), "job_ids", "none")
    yield Bad(SITE, "AckResults", ack(job_ids=ids), "job_ids", "501")
    yield Bad(SITE, "AckResults", ack(job_ids=ids[:1], notice_ids=ids[1:]), "job_ids", "501 in all")
    for what, named in (("none", []), ("501", leases(501))):
        renew = daemon_plane_pb2.RenewLeasesRequest(leases=named)
        yield Bad(DAEMON, "RenewLeases", renew, "leases", what)
        yield Bad(DAEMON, "ReleaseLeases", release(*named), "leases", what)
    twice = [HELD, *leases(1), HELD]
    renew = daemon_plane_pb2.RenewLeasesRequest(leases=twice)
    yield Bad(DAEMON, "RenewLeases", renew, "leases[2]", "twice")
    yield Bad(DAEMON, "ReleaseLeases", release(*twice), "leases[2]", "twice")
    for jobs in (0, 65, 2**32 - 1):
        yield Bad(DAEMON, "ClaimJobs", claim(max_jobs=jobs), "max_jobs", str(jobs))
    yield Bad(DAEMON, "ClaimJobs", claim(matrix=[row()] * 65), "matrix", "65 rows")
    known = row()
    known.known_models.extend(["m"] * 65)
    yield Bad(DAEMON, "ClaimJobs", claim(matrix=[known]), "matrix[0].known_models", "65")


def enums() -> Iterator[Bad]:
    """Unspecified where a value is needed, and numbers that nobody has given a name."""
    for what, number in (("unspecified", 0), ("unknown", 99), ("negative", -1)):
        for field in ("audience", "size_class"):
            yield Bad(SITE, "EnqueueJob", enqueue(**{field: number}), f"stub.{field}", what)
        yield Bad(SITE, "SealPayload", seal(direction=number), "envelope.direction", what)
        yield Bad(DAEMON, "CompleteJob", complete(direction=number), "envelope.direction", what)
        yield Bad(DAEMON, "CompleteJob", complete(disposition=number), "disposition", what)
        yield Bad(DAEMON, "ReleaseLeases", release(HELD, reason=number), "reason", what)
        for field in ("backend_class", "offer_scope"):
            bad = row()
            setattr(bad, field, number)
            yield Bad(DAEMON, "ClaimJobs", claim(matrix=[bad]), f"matrix[0].{field}", what)
        if number:
            listed = admin_pb2.ListJobsRequest()
            listed.state = number  # type: ignore[assignment]
            yield Bad(ADMIN, "ListJobs", listed, "state", what)


def times() -> Iterator[Bad]:
    """Instants and spans out of bounds."""
    instants = {
        "epoch": Timestamp(),
        "before 1970": Timestamp(seconds=-1),
        "huge": Timestamp(seconds=2**62),
        "negative nanos": Timestamp(seconds=START_MS // 1000, nanos=-1),
        "a second of nanos": Timestamp(seconds=START_MS // 1000, nanos=1_000_000_000),
    }
    for what, instant in instants.items():
        yield Bad(SITE, "EnqueueJob", enqueue(deadline_time=instant), "stub.deadline_time", what)
        yield Bad(SITE, "SealPayload", seal(deadline_time=instant), "envelope.deadline_time", what)
        yield Bad(DAEMON, "CompleteJob", complete(deadline_time=instant), "envelope.deadline_time", what)
    part = Timestamp(seconds=START_MS // 1000 + 60, nanos=1)
    yield Bad(SITE, "SealPayload", seal(deadline_time=part), "envelope.deadline_time", "fraction of a ms")
    yield Bad(
        DAEMON, "CompleteJob", complete(deadline_time=part), "envelope.deadline_time", "fraction of a ms"
    )
    spans = {
        "negative": Duration(seconds=-1),
        "a little negative": Duration(nanos=-1),
        "over 10 s": Duration(seconds=10, nanos=1_000_000),
        "huge": Duration(seconds=2**62),
        "hugely negative": Duration(seconds=-(2**62)),
        "two signs": Duration(seconds=1, nanos=-1),
        "a second of nanos": Duration(nanos=1_000_000_000),
    }
    for what, span in spans.items():
        yield Bad(DAEMON, "ClaimJobs", claim(wait=span), "wait", what)
        yield Bad(SITE, "ListNotices", site_plane_pb2.ListNoticesRequest(wait=span), "wait", what)


def missing() -> Iterator[Bad]:
    """Requests with nothing in them."""
    yield Bad(SITE, "EnqueueJob", site_plane_pb2.EnqueueJobRequest(), "stub.id", "no stub")
    yield Bad(SITE, "EnqueueJob", enqueue(deadline_time=None), "stub.deadline_time", "missing")
    bare = site_plane_pb2.SealPayloadRequest(job_id="held", lease_id="lease-1")
    yield Bad(SITE, "SealPayload", bare, "envelope.ciphertext", "no envelope")
    yield Bad(SITE, "SealPayload", seal(ciphertext=b""), "envelope.ciphertext", "empty")
    yield Bad(SITE, "SealPayload", seal(deadline_time=None), "envelope.deadline_time", "missing")
    yield Bad(DAEMON, "FetchPayload", daemon_plane_pb2.FetchPayloadRequest(), "lease.job_id", "no lease")
    without = daemon_plane_pb2.CompleteJobRequest(lease=HELD, disposition=job_pb2.DISPOSITION_OK)
    yield Bad(DAEMON, "CompleteJob", without, "envelope.ciphertext", "no envelope")
    yield Bad(DAEMON, "CompleteJob", daemon_plane_pb2.CompleteJobRequest(), "lease.job_id", "nothing")
    yield Bad(DAEMON, "ClaimJobs", daemon_plane_pb2.ClaimJobsRequest(), "max_jobs", "nothing")


def envelopes() -> Iterator[Bad]:
    """Headers that do not fit the grant, envelopes too late, and too large."""
    size = ("limit_bytes", "6291456"), ("size_bytes", "6291457")
    large, field = bytes(SIX_MIB + 1), "envelope.ciphertext"
    reason = "ENVELOPE_TOO_LARGE"
    yield Bad(SITE, "SealPayload", seal(ciphertext=large), field, "over 6 MiB", reason, size)
    yield Bad(DAEMON, "CompleteJob", complete(ciphertext=large), field, "over 6 MiB", reason, size)
    reason = "ENVELOPE_MISDIRECTED"
    down, up = job_pb2.DIRECTION_PAYLOAD, job_pb2.DIRECTION_RESULT
    other = keys_of("other").key_id
    yield Bad(SITE, "SealPayload", seal(direction=up), "", "direction", reason)
    yield Bad(SITE, "SealPayload", seal(sender_key_id=other), "", "sender", reason)
    yield Bad(SITE, "SealPayload", seal(recipient_key_id=keys_of("runner-2").key_id), "", "recipient", reason)
    yield Bad(DAEMON, "CompleteJob", complete(direction=down), "", "direction", reason)
    yield Bad(DAEMON, "CompleteJob", complete(sender_key_id=other), "", "sender", reason)
    yield Bad(DAEMON, "CompleteJob", complete(recipient_key_id=other), "", "recipient", reason)
    for late in (timestamp(START_MS), timestamp(START_MS - 1)):
        reason, what = "ENVELOPE_EXPIRED", str(late.ToMilliseconds() - START_MS)
        yield Bad(SITE, "SealPayload", seal(deadline_time=late), "", what, reason)
        yield Bad(DAEMON, "CompleteJob", complete(deadline_time=late), "", what, reason)


def pages() -> Iterator[Bad]:
    """Page sizes and tokens."""
    lists: tuple[tuple[str, str, Any], ...] = (
        (SITE, "ListNotices", site_plane_pb2.ListNoticesRequest),
        (ADMIN, "ListJobs", admin_pb2.ListJobsRequest),
        (ADMIN, "ListDaemons", admin_pb2.ListDaemonsRequest),
        (ADMIN, "ListSites", admin_pb2.ListSitesRequest),
        (ADMIN, "ListChurnReports", admin_pb2.ListChurnReportsRequest),
    )
    for service, method, kind in lists:
        for size in (501, 2**32 - 1):
            yield Bad(service, method, kind(page_size=size), "page_size", str(size))
        for token in ("abc", "-1", "1.5", " 1", "１", "9" * 20, "0x10"):
            yield Bad(service, method, kind(page_token=token), "", f"token {token}", "PAGE_TOKEN_INVALID")
