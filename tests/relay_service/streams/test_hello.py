"""The first three frames: challenge, signed hello, welcome."""

import asyncio
from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from sealwork.session.v1 import session_pb2
from tests.relay_service.raw_client import RawParty, RawStream, row
from tests.relay_service.relay_fixture import (
    START_MS,
    RelayUnderTest,
    serving,
)

BAD_SIGNATURE = (grpc.StatusCode.UNAUTHENTICATED, "BAD_SIGNATURE")
VIOLATION = (grpc.StatusCode.INVALID_ARGUMENT, "PROTOCOL_VIOLATION")


def party(relay: RelayUnderTest, plane: str) -> RawParty:
    return relay.daemon() if plane == "daemon" else relay.site()


async def refused(stream: RawStream) -> tuple[grpc.StatusCode, str]:
    refusal = await stream.end()
    assert refusal is not None
    assert refusal.domain == "relay.sealwork.dev"
    return refusal.code, refusal.reason


async def test_a_stream_begins_with_a_fresh_nonce(relay: RelayUnderTest) -> None:
    nonces = {(await relay.daemon().open().next("challenge")).nonce for _ in range(3)}
    assert len(nonces) == 3
    assert {len(nonce) for nonce in nonces} == {16}


async def test_the_welcome_tells_what_the_relay_enforces(relay: RelayUnderTest) -> None:
    daemon = relay.daemon()
    stream = daemon.open()
    await daemon.greet(stream)
    welcome = await stream.next("welcome")

    assert welcome.session_id
    assert welcome.session_epoch == START_MS
    assert welcome.server_instance == "relay-test"
    assert welcome.server_time.ToMilliseconds() == START_MS
    assert not welcome.HasField("offered_version")
    limits = welcome.limits
    spans = (
        limits.heartbeat_interval,
        limits.liveness_timeout,
        limits.lease,
        limits.renew_interval,
        limits.stream_age,
        limits.grant_acknowledgement,
    )
    assert [span.ToMilliseconds() for span in spans] == [15_000, 45_000, 60_000, 20_000, 1_800_000, 10_000]
    assert (limits.frame_bytes, limits.inline_body_bytes) == (65_536, 32_768)
    assert (limits.leases_per_frame, limits.queued_items) == (500, 1_024)


async def test_verdicts_follow_the_welcome_of_a_device_at_once(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect()
    assert not (await stream.next("verdicts")).verdicts
    assert [frame.seq for frame in stream.frames] == [1, 2]
    assert stream.frames[1].ack_seq == 1


async def test_capabilities_in_force_are_those_that_both_sides_know(relay: RelayUnderTest) -> None:
    daemon, site = relay.daemon(), relay.site()
    everything = [session_pb2.CAPABILITY_INLINE_PAYLOAD, session_pb2.CAPABILITY_INLINE_RESULT, 77]
    streams: list[RawStream] = [daemon.open(), site.open()]
    await daemon.greet(streams[0], capabilities=everything)
    await site.greet(streams[1], capabilities=everything)
    assert list((await streams[0].next("welcome")).capabilities) == [session_pb2.CAPABILITY_INLINE_PAYLOAD]
    assert list((await streams[1].next("welcome")).capabilities) == [session_pb2.CAPABILITY_INLINE_RESULT]


async def test_a_later_session_has_a_greater_epoch(relay: RelayUnderTest) -> None:
    site = relay.site()
    epochs = []
    for _ in range(3):
        stream = site.open()
        await site.greet(stream)
        epochs.append((await stream.next("welcome")).session_epoch)
    assert epochs == [START_MS, START_MS + 1, START_MS + 2]


async def test_a_newer_version_is_offered_and_not_required() -> None:
    async with serving(offered_version="0.2.0") as relay:
        daemon = relay.daemon()
        older, newer = daemon.open(), daemon.open()
        await daemon.greet(older)
        assert (await older.next("welcome")).offered_version == "0.2.0"
        await daemon.greet(newer, client_version="0.2.0")
        assert not (await newer.next("welcome")).HasField("offered_version")


async def test_a_daemon_below_the_floor_is_told_the_floor() -> None:
    async with serving(daemon_floor="0.2.0") as relay:
        stream = relay.daemon().open()
        await relay.daemon().greet(stream, client_version="0.1.9")
        refusal = await stream.end()
        assert refusal is not None
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "DAEMON_BELOW_FLOOR",
        )
        assert refusal.metadata == (("floor", "0.2.0"),)


@pytest.mark.parametrize("plane", ["daemon", "site"])
@pytest.mark.parametrize("version", [0, 2])
async def test_another_protocol_version_is_told_which_is_spoken(
    relay: RelayUnderTest, plane: str, version: int
) -> None:
    caller = party(relay, plane)
    stream = caller.open()
    await caller.greet(stream, protocol_version=version)
    refusal = await stream.end()
    assert refusal is not None
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal.reason == "UNSUPPORTED_PROTOCOL_VERSION"
    assert refusal.metadata == (("supported", "1"),)


@pytest.mark.parametrize("plane", ["daemon", "site"])
async def test_no_hello_within_ten_seconds(relay: RelayUnderTest, plane: str) -> None:
    stream = party(relay, plane).open()
    await stream.next("challenge")
    await relay.clock.advance_async(9_999)
    assert not stream.closed
    await relay.clock.advance_async(1)
    assert await refused(stream) == (grpc.StatusCode.DEADLINE_EXCEEDED, "HELLO_TIMEOUT")


async def test_a_hello_after_ten_seconds_comes_too_late(relay: RelayUnderTest) -> None:
    daemon = relay.daemon()
    stream = daemon.open()
    challenge = await stream.next("challenge")
    await relay.clock.advance_async(10_000)
    assert await refused(stream) == (grpc.StatusCode.DEADLINE_EXCEEDED, "HELLO_TIMEOUT")
    with pytest.raises(asyncio.InvalidStateError):
        await stream.send(hello=daemon.sign(daemon.hello().SerializeToString(), challenge.nonce))
    assert relay.open_streams("daemon") == 0


@pytest.mark.parametrize("plane", ["daemon", "site"])
@pytest.mark.parametrize("first", ["heartbeat", "goodbye", "nothing", "malformed", "half-closed"])
async def test_anything_but_a_hello_first(relay: RelayUnderTest, plane: str, first: str) -> None:
    stream = party(relay, plane).open()
    await stream.next("challenge")
    match first:
        case "heartbeat":
            await stream.send(heartbeat=session_pb2.Heartbeat(ping_id=1))
        case "goodbye":
            await stream.send(goodbye=session_pb2.Goodbye())
        case "nothing":
            await stream.send_items()
        case "malformed":
            await stream.send_bytes(b"\xff\xff\xff")
        case _:
            await stream.call.done_writing()
    assert await refused(stream) == VIOLATION


@pytest.mark.parametrize("plane", ["daemon", "site"])
async def test_hello_bytes_that_are_no_hello(relay: RelayUnderTest, plane: str) -> None:
    caller = party(relay, plane)
    stream = caller.open()
    challenge = await stream.next("challenge")
    await stream.send(hello=caller.sign(b"\xff\xff\xff", challenge.nonce))
    assert await refused(stream) == VIOLATION


@pytest.mark.parametrize("plane", ["daemon", "site"])
async def test_a_first_frame_over_the_limit_is_not_looked_into(relay: RelayUnderTest, plane: str) -> None:
    caller = party(relay, plane)
    stream = caller.open()
    challenge = await stream.next("challenge")
    hello = caller.hello(client_name="x" * 70_000).SerializeToString()
    await stream.send(hello=caller.sign(hello, challenge.nonce))
    assert await refused(stream) == VIOLATION


@pytest.mark.parametrize("plane", ["daemon", "site"])
@pytest.mark.parametrize("together", [True, False], ids=["one-frame", "later"])
async def test_a_second_hello(relay: RelayUnderTest, plane: str, together: bool) -> None:
    caller = party(relay, plane)
    stream = caller.open()
    challenge = await stream.next("challenge")
    item = stream.item(hello=caller.sign(caller.hello().SerializeToString(), challenge.nonce))
    if together:
        await stream.send_items(item, item)
    else:
        await stream.send_items(item)
        await stream.next("welcome")
        await stream.send_items(item)
    assert await refused(stream) == VIOLATION
    await relay.ended(plane, "refused")


async def test_items_may_follow_the_hello_in_its_frame(relay: RelayUnderTest) -> None:
    daemon = relay.daemon()
    stream = daemon.open()
    challenge = await stream.next("challenge")
    hello = daemon.sign(daemon.hello(limit=0).SerializeToString(), challenge.nonce)
    await relay.enqueue("job-1")
    await stream.send_items(
        stream.item(hello=hello),
        stream.item(grant_ack=daemon_plane_pb2.GrantAck()),
        stream.item(credit=session_pb2.Credit(limit=1)),
    )
    assert (await stream.next("granted")).stub.id == "job-1"
    error = await stream.next("frame_error")
    assert (error.frame_seq, error.item_index) == (1, 1)


LEASE = job_pb2.LeaseRef(job_id="job-1", lease_id="lease-1")
FAULTY_HELLOS: list[tuple[str, dict[str, Any], str]] = [
    ("empty process", {"process_id": ""}, "process_id"),
    ("long process", {"process_id": "p" * 129}, "process_id"),
    ("control character", {"process_id": "a\x00b"}, "process_id"),
    ("long version", {"client_version": "v" * 129}, "client_version"),
    ("escape in version", {"client_version": "1\x1b[2J"}, "client_version"),
    ("long name", {"client_name": "n" * 129}, "client_name"),
    ("credit", {"limit": 1_000_001}, "credit.limit"),
    ("65 rows", {"matrix": [row()] * 65}, "matrix"),
    ("kind", {"matrix": [row("")]}, "matrix[0].kind"),
    ("withheld", {"withheld": [job_pb2.WithheldKind(kind="k")]}, "withheld[0].claimants"),
    ("501 leases", {"inventory": {"leases": [LEASE] * 501}}, "inventory.leases"),
    ("one lease twice", {"inventory": {"leases": [LEASE, LEASE]}}, "inventory.leases[1]"),
    ("lease id", {"inventory": {"leases": [{"job_id": "j"}]}}, "inventory.leases[0].lease_id"),
]


@pytest.mark.parametrize(
    ("fields", "field"), [case[1:] for case in FAULTY_HELLOS], ids=[c[0] for c in FAULTY_HELLOS]
)
async def test_a_faulty_hello_names_its_faults(
    relay: RelayUnderTest, fields: dict[str, Any], field: str
) -> None:
    stream = relay.daemon().open()
    await relay.daemon().greet(stream, **fields)
    refusal = await stream.end()
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert field in refusal.fields
    assert relay.open_streams("daemon") == 0
    assert await relay.store.everyone() == []
