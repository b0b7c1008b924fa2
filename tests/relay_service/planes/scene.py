"""One state of a relay, always the same, and well-formed requests about it to spoil."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.relay_service.raw_client import KIND, RawParty, row
from tests.relay_service.relay_fixture import (
    DAY_MS,
    START_MS,
    RelayUnderTest,
    Serve,
    keys_of,
    serving,
    timestamp,
)

# Grants are numbered in the order in which the scene makes them. While it is played with a store that names
# leases by itself, these have its names.
HELD = job_pb2.LeaseRef(job_id="held", lease_id="lease-1")
SEALED = job_pb2.LeaseRef(job_id="sealed", lease_id="lease-2")
DONE = job_pb2.LeaseRef(job_id="done", lease_id="lease-3")

# What no identifier may be.
BAD_IDS = {
    "empty": "",
    "129 characters": "x" * 129,
    "NUL": "a\x00b",
    "line break": "a\nb",
    "DEL": "a\x7fb",
    "C1": "a\x85b",
}
BAD_MARK = "@@@@"


@asynccontextmanager
async def scene(serve: Serve = serving) -> AsyncIterator[RelayUnderTest]:
    """Jobs of site demo: one queued, and one each that runner-1 holds unsealed, sealed and has finished."""
    async with serve() as relay:
        with _names_restored():
            for lease in (HELD, SEALED, DONE):
                await relay.enqueue(lease.job_id)
                (granted,) = (await relay.daemon().call("ClaimJobs", claim(lease.job_id))).granted
                if serve is not serving:
                    lease.lease_id = granted.lease.id
                assert granted.lease.id == lease.lease_id
                if lease is SEALED:
                    await relay.seal(lease)
                if lease is DONE:
                    await relay.daemon().call("CompleteJob", complete(lease))
            await relay.enqueue("queued")
            yield relay


@contextmanager
def _names_restored() -> Iterator[None]:
    names = [(lease, lease.lease_id) for lease in (HELD, SEALED, DONE)]
    try:
        yield
    finally:
        for lease, name in names:
            lease.lease_id = name


def caller(relay: RelayUnderTest, service: str) -> RawParty:
    match service:
        case "DaemonPlaneService":
            return relay.daemon()
        case "SitePlaneService":
            return relay.site()
        case _:
            return relay.operator()


def stub(**fields: Any) -> job_pb2.JobStub:
    given: dict[str, Any] = {
        "id": "new",
        "kind": KIND,
        "owner": "alice",
        "site": keys_of("demo").key_id,
        "audience": job_pb2.AUDIENCE_TEAM,
        "size_class": job_pb2.SIZE_CLASS_SMALL,
        "deadline_time": timestamp(START_MS + DAY_MS),
    }
    return job_pb2.JobStub(**(given | fields))


def enqueue(**fields: Any) -> site_plane_pb2.EnqueueJobRequest:
    return site_plane_pb2.EnqueueJobRequest(stub=stub(**fields))


def envelope(leg: Any, **fields: Any) -> job_pb2.SealedEnvelope:
    down = leg == job_pb2.DIRECTION_PAYLOAD
    given: dict[str, Any] = {
        "ciphertext": b"sealed payload" if down else b"sealed result",
        "recipient_key_id": keys_of("runner-1" if down else "demo").key_id,
        "sender_key_id": keys_of("demo" if down else "runner-1").key_id,
        "direction": leg,
        "deadline_time": timestamp(START_MS + DAY_MS),
    }
    return job_pb2.SealedEnvelope(**(given | fields))


def seal(job_id: str = "held", lease_id: str = "lease-1", **fields: Any) -> site_plane_pb2.SealPayloadRequest:
    return site_plane_pb2.SealPayloadRequest(
        job_id=job_id, lease_id=lease_id, envelope=envelope(job_pb2.DIRECTION_PAYLOAD, **fields)
    )


def complete(
    lease: Any = HELD, disposition: Any = job_pb2.DISPOSITION_OK, **fields: Any
) -> daemon_plane_pb2.CompleteJobRequest:
    return daemon_plane_pb2.CompleteJobRequest(
        lease=lease, envelope=envelope(job_pb2.DIRECTION_RESULT, **fields), disposition=disposition
    )


def claim(request_id: str = "claim", **fields: Any) -> daemon_plane_pb2.ClaimJobsRequest:
    given: dict[str, Any] = {"matrix": [row()], "max_jobs": 1}
    return daemon_plane_pb2.ClaimJobsRequest(request_id=request_id, **(given | fields))


def release(
    *leases: Any, reason: Any = daemon_plane_pb2.RELEASE_REASON_PAUSE
) -> daemon_plane_pb2.ReleaseLeasesRequest:
    return daemon_plane_pb2.ReleaseLeasesRequest(leases=leases, reason=reason)


def leases(count: int) -> list[job_pb2.LeaseRef]:
    return [job_pb2.LeaseRef(job_id="job", lease_id=f"lease-{number}") for number in range(count)]


def not_utf8(message: Any) -> bytes:
    """The message's bytes with the mark in a text made invalid UTF-8."""
    body: bytes = message.SerializeToString()
    assert body.count(BAD_MARK.encode()) == 1
    return body.replace(BAD_MARK.encode(), b"\xc3\x28\xa0\xa1")
