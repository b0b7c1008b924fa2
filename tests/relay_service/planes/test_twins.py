"""A call on a stream is answered as its unary twin is, and does the same, whatever the state."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
import pytest
from google.protobuf import text_format

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
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
from tests.relay_service.planes.twins import TWINS, ask_on_stream
from tests.relay_service.raw_client import RawParty, Refusal, row
from tests.relay_service.relay_fixture import RelayUnderTest, Serve, keys_of

Ref = job_pb2.LeaseRef
Names: TypeAlias = dict[str, str]
UNKNOWN = Ref(job_id="unknown", lease_id="unknown")
STALE = Ref(job_id="held", lease_id="lease-0")
CANCELLED = Ref(job_id="cancelled", lease_id="lease-5")
SOMEONE_ELSES = Ref(job_id="others", lease_id="lease-4")
Ack = site_plane_pb2.AckResultsRequest
Fetch = daemon_plane_pb2.FetchPayloadRequest

FOREIGN = stub(id="foreign", site=keys_of("other").key_id)
MIXED = site_plane_pb2.EnqueueJobsRequest(
    stubs=[stub(id="fresh"), stub(id="held"), stub(id="", kind="k"), FOREIGN]
)
# Method, request, and what comes of it: the answer's own words or the reason of the refusal.
CASES: list[tuple[str, Any, str]] = [
    ("EnqueueJob", enqueue(id="fresh"), "state: JOB_STATE_QUEUED created: true"),
    ("EnqueueJob", enqueue(id="held", kind="other"), "state: JOB_STATE_AWAITING_PAYLOAD"),
    ("EnqueueJob", enqueue(id="done"), "state: JOB_STATE_DONE"),
    ("EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=FOREIGN), "STUB_SITE_MISMATCH"),
    ("EnqueueJobs", MIXED, "created: true"),
    ("GetJob", site_plane_pb2.GetJobRequest(job_id="queued"), "state: JOB_STATE_QUEUED"),
    ("GetJob", site_plane_pb2.GetJobRequest(job_id="held"), 'lease_id: "lease-1"'),
    ("GetJob", site_plane_pb2.GetJobRequest(job_id="done"), "disposition: DISPOSITION_OK"),
    ("GetJob", site_plane_pb2.GetJobRequest(job_id="unknown"), "JOB_NOT_FOUND"),
    ("CancelJob", site_plane_pb2.CancelJobRequest(job_id="queued"), "cancelled: true"),
    ("CancelJob", site_plane_pb2.CancelJobRequest(job_id="held"), "cancelled: true"),
    ("CancelJob", site_plane_pb2.CancelJobRequest(job_id="done"), "cancelled: true"),
    ("CancelJob", site_plane_pb2.CancelJobRequest(job_id="unknown"), ""),
    ("SealPayload", seal(), "state: JOB_STATE_READY"),
    ("SealPayload", seal("sealed", "lease-2"), "state: JOB_STATE_READY"),
    ("SealPayload", seal("sealed", "lease-2", ciphertext=b"another"), "NOT_AWAITING_PAYLOAD"),
    ("SealPayload", seal("done", "lease-3"), "NOT_AWAITING_PAYLOAD"),
    ("SealPayload", seal("queued"), "STALE_LEASE"),
    ("SealPayload", seal("held", "lease-0"), "STALE_LEASE"),
    ("SealPayload", seal("unknown"), "JOB_NOT_FOUND"),
    ("SealPayload", seal("cancelled", "lease-5"), "JOB_CANCELLED"),
    ("SealPayload", seal("held", sender_key_id=keys_of("other").key_id), "ENVELOPE_MISDIRECTED"),
    ("GetResult", site_plane_pb2.GetResultRequest(job_id="done"), 'runner_owner: "alice"'),
    ("GetResult", site_plane_pb2.GetResultRequest(job_id="held"), "RESULT_NOT_READY"),
    ("GetResult", site_plane_pb2.GetResultRequest(job_id="unknown"), "JOB_NOT_FOUND"),
    ("AckResults", Ack(job_ids=["unknown", "done", "held"]), 'settled_ids: "done"'),
    ("AckResults", Ack(notice_ids=["unknown"]), ""),
    ("FetchPayload", Fetch(lease=SEALED), 'ciphertext: "sealed payload"'),
    ("FetchPayload", Fetch(lease=HELD), "PAYLOAD_NOT_SEALED"),
    ("FetchPayload", Fetch(lease=DONE), "JOB_FINISHED"),
    ("FetchPayload", Fetch(lease=STALE), "STALE_LEASE"),
    ("FetchPayload", Fetch(lease=UNKNOWN), "JOB_NOT_FOUND"),
    ("FetchPayload", Fetch(lease=SOMEONE_ELSES), "NOT_LEASE_HOLDER"),
    ("FetchPayload", Fetch(lease=CANCELLED), "JOB_CANCELLED"),
    ("CompleteJob", complete(HELD), "accepted: true"),
    ("CompleteJob", complete(SEALED, job_pb2.DISPOSITION_ERROR), "accepted: true"),
    ("CompleteJob", complete(DONE, ciphertext=b"another"), "duplicate: true"),
    ("CompleteJob", complete(STALE), "STALE_LEASE"),
    ("CompleteJob", complete(UNKNOWN), "JOB_NOT_FOUND"),
    ("CompleteJob", complete(SOMEONE_ELSES), "NOT_LEASE_HOLDER"),
    ("CompleteJob", complete(HELD, recipient_key_id=keys_of("other").key_id), "ENVELOPE_MISDIRECTED"),
    ("ReleaseLeases", release(UNKNOWN, HELD, DONE, STALE), 'job_ids: "held"'),
    ("ReleaseLeases", release(HELD, reason=daemon_plane_pb2.RELEASE_REASON_REFUSED), 'job_ids: "held"'),
    (
        "ReleaseLeases",
        release(SEALED, reason=daemon_plane_pb2.RELEASE_REASON_BAD_ENVELOPE),
        'job_ids: "sealed"',
    ),
    ("ReleaseLeases", release(SOMEONE_ELSES), ""),
]


def party(relay: RelayUnderTest, method: str) -> RawParty:
    return relay.daemon() if method in {"FetchPayload", "CompleteJob", "ReleaseLeases"} else relay.site()


async def prepare(relay: RelayUnderTest) -> Names:
    """Adds a job that bob's device holds, and one that was withdrawn from runner-1.

    Returns:
        what the store has named the leases that the cases know as lease-0 to lease-5.
    """
    # Only one of the store's own making, so that it is told from one that never was.
    names = {"lease-0": f"{HELD.lease_id[:-1]}0"}
    names |= {f"lease-{number}": lease.lease_id for number, lease in enumerate((HELD, SEALED, DONE), 1)}
    chat = claim(matrix=[row("llm.chat")])
    for job_id, owner, runner_id in (("others", "bob", "runner-b"), ("cancelled", "alice", "runner-1")):
        await relay.enqueue(job_id, owner=owner, kind="llm.chat")
        chat.request_id = job_id
        (granted,) = (await relay.daemon(runner_id).call("ClaimJobs", chat)).granted
        assert granted.stub.id == job_id
        names[f"lease-{len(names)}"] = granted.lease.id
    await relay.cancel("cancelled")
    return names


@asynccontextmanager
async def prepared(serve: Serve) -> AsyncIterator[tuple[RelayUnderTest, Names]]:
    async with scene(serve) as relay:
        yield relay, await prepare(relay)


def as_named(message: Any, names: Names) -> Any:
    """The message with the leases' names in the store's words."""
    text = text_format.MessageToString(message, as_utf8=True)
    for name, given in names.items():
        text = text.replace(f'"{name}"', f'"{given}"')
    return text_format.Parse(text, type(message)())


def unnamed(text: str, names: Names) -> str:
    """The text with the leases' names in the cases' words."""
    for name, given in names.items():
        text = text.replace(given, name)
    return text


async def dump(relay: RelayUnderTest, names: Names) -> str:
    """What the store holds, but for what no two runs have in common: a server's own sequence numbers."""
    return re.sub(r"\b\d{16}\b", "number", unnamed(await relay.dump(), names))


async def by_call(relay: RelayUnderTest, method: str, request: Any) -> Any:
    try:
        return await party(relay, method).call(method, request)
    except grpc.aio.AioRpcError as error:
        return Refusal.of_call(error.code(), error.trailing_metadata())


async def on_stream(relay: RelayUnderTest, method: str, request: Any, names: Names) -> Any:
    caller = party(relay, method)
    held: dict[str, Any] = {"inventory": {"leases": [HELD, SEALED, as_named(CANCELLED, names)]}}
    stream = await caller.connect(limit=0, **({} if caller.service == "SitePlaneService" else held))
    reply = await ask_on_stream(stream, method, request)
    await stream.send(goodbye=session_pb2.Goodbye())
    assert await stream.end() is None
    outcome = reply.WhichOneof("outcome")
    return Refusal.of_status(reply.error) if outcome == "error" else getattr(reply, TWINS[method])


def check(answer: Any, expected: str, names: Names) -> None:
    text = answer.reason if isinstance(answer, Refusal) else str(answer).replace("\n", " ")
    text = unnamed(text, names)
    assert expected in text
    assert bool(expected) == bool(text)


def changes_nothing(case: tuple[str, Any, str]) -> bool:
    """A refusal, or a question."""
    return case[2].isupper() or case[0] in {"GetJob", "GetResult"}


def named(cases: list[tuple[str, Any, str]]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0]}-{case[2] or 'empty'}") for case in cases]


@pytest.mark.parametrize(
    ("method", "request_", "expected"), named([case for case in CASES if not changes_nothing(case)])
)
async def test_twins_answer_alike_and_do_the_same(
    serve: Serve, method: str, request_: Any, expected: str
) -> None:
    async with prepared(serve) as (relay, names):
        called = await by_call(relay, method, as_named(request_, names))
        check(called, expected, names)
        after_call = await dump(relay, names)
    async with prepared(serve) as (relay, names):
        assert await on_stream(relay, method, as_named(request_, names), names) == called
        assert await dump(relay, names) == after_call


@pytest.mark.parametrize(
    ("method", "request_", "expected"), named([case for case in CASES if changes_nothing(case)])
)
async def test_twins_refuse_alike_and_change_nothing(
    serve: Serve, method: str, request_: Any, expected: str
) -> None:
    async with prepared(serve) as (relay, names):
        before = await relay.dump()
        called = await by_call(relay, method, as_named(request_, names))
        check(called, expected, names)
        assert await on_stream(relay, method, as_named(request_, names), names) == called
        assert await relay.dump() == before


def test_every_twin_is_tried_with_and_without_success() -> None:
    assert {case[0] for case in CASES} == set(TWINS)
