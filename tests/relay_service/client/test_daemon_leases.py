"""A device and its leases: cancel, loss, renewal, streams that come and go, and the end."""

import asyncio

import grpc
import pytest

from relay_service.client import CanceledOutcome, RelayError
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from tests.harness.waiting import eventually
from tests.relay_service.client.daemon_words import (
    ACTIVE,
    CANCEL_REQUESTED,
    LOST,
    TEAM,
    consented,
    refusal,
)
from tests.relay_service.client.real_relay import (
    DEVICE_KEYS,
    SITE_KEYS,
    STRANGER_KEYS,
)
from tests.relay_service.client.scripted_device import (
    ServerItem,
    granted,
    lease_ref,
    opened_result,
    played_relay,
)
from tests.service_common.scripted_server import duration

# -- cancel and loss --------------------------------------------------------------------


async def test_a_cancel_stops_the_handler_and_is_reported() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        await relay.verdict("j-1", CANCEL_REQUESTED)
        ack = await relay.stream.next_item("cancel_ack")
        request = await relay.completed()

        assert list(ack.leases) == [lease_ref("j-1")]
        assert relay.work.stopped == ["j-1"]
        assert relay.work.started[0].cancelled.is_set()
        assert request.disposition == job_pb2.DISPOSITION_CANCELED
        assert opened_result(request).outcome == CanceledOutcome()


async def test_a_cancel_before_the_payload_is_reported_too() -> None:
    async with played_relay() as relay:
        await relay.grant("j-1")
        await relay.stream.next_item("grant_ack")
        await relay.verdict("j-1", CANCEL_REQUESTED)

        assert opened_result(await relay.completed()).outcome == CanceledOutcome()
        assert relay.work.started == []


async def test_a_cancel_found_when_the_payload_is_fetched_is_reported_too() -> None:
    async with played_relay() as relay:
        await relay.grant("j-1")
        await relay.stream.send(ServerItem(payload_ready={"lease": lease_ref("j-1"), "size_bytes": 10}))
        await relay.reply(await relay.call(), error=refusal("JOB_CANCELLED").to_status("d"))

        assert opened_result(await relay.completed()).outcome == CanceledOutcome()


async def test_a_cancel_that_is_said_twice_is_acknowledged_twice_and_reported_once() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        await relay.verdict("j-1", CANCEL_REQUESTED)
        await relay.verdict("j-1", CANCEL_REQUESTED)
        await relay.completed()
        await relay.start("j-2", lease="l-2")

        assert [call.WhichOneof("request") for call in relay.stream.items("call")] == ["complete_job"]


async def test_a_lost_lease_stops_the_handler_and_nothing_is_reported() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        await relay.verdict("j-1", LOST)
        await eventually(lambda: relay.work.stopped == ["j-1"])
        await relay.start("j-2", lease="l-2")

        assert relay.stream.items("call") == []
        assert relay.daemon.active == 1


async def test_a_lease_that_is_not_renewed_ends_here_without_the_relay() -> None:
    async with played_relay() as relay:
        await relay.start("j-1", seconds=60)
        await relay.clock.advance_async(30_000)
        await relay.stream.send()
        await relay.clock.advance_async(29_900)
        assert relay.work.stopped == []
        await relay.clock.advance_async(100)

        await eventually(lambda: relay.work.stopped == ["j-1"])
        assert relay.daemon.active == 0
        assert relay.stream.items("call") == []


# -- renewals ---------------------------------------------------------------------------


async def test_all_leases_are_renewed_together_and_count_from_the_question() -> None:
    async with played_relay() as relay:
        await relay.start("j-1", seconds=60)
        await relay.grant("j-2", lease="l-2", seconds=60)
        await relay.stream.next_item("grant_ack", after=1)
        await relay.clock.advance_async(22_000)
        renew = await relay.stream.next_item("renew")
        assert list(renew.leases) == [lease_ref("j-1"), lease_ref("j-2", "l-2")]
        assert len(relay.stream.items("renew")) == 1

        # The answer takes five seconds: they are the device's loss, not its gain.
        asked_for = relay.work.started[0].seconds_left()
        await relay.clock.advance_async(5_000)
        answer = daemon_plane_pb2.Verdicts(renewal_id=renew.renewal_id, renewed_for=duration(60))
        await relay.stream.send(ServerItem(verdicts=answer))
        await eventually(lambda: relay.work.started[0].seconds_left() > asked_for)
        # Asked between 18 and 22 s after the start, so at most 4 s before 22 s.
        assert 51 <= relay.work.started[0].seconds_left() <= 55


async def test_exceptions_of_a_renewal_are_heeded() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        await relay.start("j-2", lease="l-2")
        await relay.clock.advance_async(22_000)
        renew = await relay.stream.next_item("renew")
        verdicts = [
            job_pb2.LeaseVerdict(lease=lease_ref("j-1"), state=LOST),
            job_pb2.LeaseVerdict(
                lease=lease_ref("j-2", "l-2"), state=CANCEL_REQUESTED, remaining=duration(60)
            ),
        ]
        answer = daemon_plane_pb2.Verdicts(
            renewal_id=renew.renewal_id, renewed_for=duration(60), verdicts=verdicts
        )
        await relay.stream.send(ServerItem(verdicts=answer))
        request = await relay.completed()

        assert request.lease == lease_ref("j-2", "l-2")
        assert request.disposition == job_pb2.DISPOSITION_CANCELED
        assert sorted(relay.work.stopped) == ["j-1", "j-2"]


async def test_without_a_stream_leases_are_renewed_by_unary_call() -> None:
    def renewed(body: bytes) -> bytes:
        request = daemon_plane_pb2.RenewLeasesRequest.FromString(body)
        verdicts = [
            job_pb2.LeaseVerdict(lease=lease, state=ACTIVE, remaining=duration(60))
            for lease in request.leases
        ]
        return daemon_plane_pb2.RenewLeasesResponse(verdicts=verdicts).SerializeToString()

    async with played_relay(unary={"RenewLeases": renewed}) as relay:
        await relay.start("j-1", seconds=30)
        relay.stream.end(refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE, retry_after_ms=600_000))
        await eventually(lambda: not relay.daemon.connected)
        await relay.clock.advance_async(22_000)
        await eventually(lambda: relay.server.seen("RenewLeases"))
        await eventually(lambda: relay.work.started[0].seconds_left() > 30)

        assert relay.work.stopped == []


async def test_nothing_is_sent_for_an_idle_device() -> None:
    async with played_relay(limits={"heartbeat": 300, "liveness": 900}) as relay:
        await relay.clock.advance_async(200_000)
        await asyncio.sleep(0.05)

        assert len(relay.stream.frames) == 1


# -- streams ----------------------------------------------------------------------------


async def test_a_new_stream_states_what_is_held_and_gets_verdicts() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        await relay.start("j-2", lease="l-2")
        relay.stream.end(refusal("SERVER_DRAINING", grpc.StatusCode.UNAVAILABLE))
        await eventually(lambda: not relay.daemon.connected)
        await relay.clock.advance_async(2_000)
        again = await relay.server.stream(1)
        hello = await again.welcome()
        assert list(hello.inventory.leases) == [lease_ref("j-1"), lease_ref("j-2", "l-2")]
        assert hello.credit.limit == 0
        assert hello.process_id == relay.hello.process_id
        lost = job_pb2.LeaseVerdict(lease=lease_ref("j-1"), state=LOST)
        kept = job_pb2.LeaseVerdict(lease=lease_ref("j-2", "l-2"), state=ACTIVE, remaining=duration(60))
        await again.send(ServerItem(verdicts={"verdicts": [lost, kept]}))

        await eventually(lambda: relay.work.stopped == ["j-1"])
        assert relay.daemon.active == 1
        assert (await again.next_item("credit")).limit == 1


async def test_a_grant_that_the_new_hello_did_not_name_is_asked_for() -> None:
    async with played_relay() as relay:
        await relay.stream.send(ServerItem(drain_notice={"reconnect_after": duration(0)}))
        again = await relay.server.stream(1)
        await again.challenge()
        await again.next_item("hello")
        await relay.grant("j-1")
        await relay.stream.next_item("grant_ack")
        from tests.service_common.scripted_server import make_welcome

        await again.send(ServerItem(welcome=make_welcome()))

        assert list((await again.next_item("renew")).leases) == [lease_ref("j-1")]


async def test_what_a_replaced_stream_still_grants_is_not_taken() -> None:
    async with played_relay() as relay:
        await relay.stream.send(ServerItem(drain_notice={"reconnect_after": duration(0)}))
        again = await relay.server.stream(1)
        await again.welcome()
        await relay.stream.next_item("goodbye")
        await relay.grant("j-1")
        await again.send(ServerItem(granted=granted("j-2", lease="l-2")))

        assert list((await again.next_item("grant_ack")).leases) == [lease_ref("j-2", "l-2")]
        assert relay.stream.items("grant_ack") == []
        assert relay.daemon.active == 1


async def test_a_resync_is_answered_with_the_inventory() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        await relay.stream.send(ServerItem(resync_required={"reason": 1}))
        inventory = await relay.stream.next_item("inventory")

        assert (list(inventory.leases), inventory.more) == ([lease_ref("j-1")], False)


async def test_a_changed_matrix_is_told() -> None:
    async with played_relay() as relay:
        relay.daemon.change_matrix([TEAM])
        changed = await relay.stream.next_item("capabilities_changed")

        # As it is in truth: without a control plane nobody but the owner is served.
        assert [row.offer_scope for row in changed.matrix] == [job_pb2.AUDIENCE_PRIVATE]


async def test_a_site_that_has_left_gets_its_jobs_back() -> None:
    pins = [SITE_KEYS.public, STRANGER_KEYS.public]
    async with played_relay(pins=pins) as relay:
        await relay.start("j-1")
        sites = {"sites": [consented(STRANGER_KEYS)]}
        await relay.stream.send(ServerItem(sites_changed={"directory": sites}))
        request = await relay.released()

        assert request.reason == daemon_plane_pb2.RELEASE_REASON_REVOKED
        await eventually(lambda: relay.work.stopped == ["j-1"])


async def test_an_empty_directory_revokes_nothing() -> None:
    async with played_relay() as relay:
        await relay.stream.send(ServerItem(sites_changed={"directory": {}}))
        await relay.start("j-1")

        assert relay.daemon.active == 1


# -- the end ----------------------------------------------------------------------------


async def test_stop_finishes_what_runs_and_gives_back_what_waits() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        await relay.grant("j-2", lease="l-2")
        await relay.stream.next_item("grant_ack", after=1)
        stopping = asyncio.ensure_future(relay.daemon.stop(grace_seconds=20))
        await relay.stream.next_item("draining")
        released = await relay.released()
        assert list(released.leases) == [lease_ref("j-2", "l-2")]
        assert released.reason == daemon_plane_pb2.RELEASE_REASON_SHUTDOWN
        relay.work.gate.set()
        await relay.completed()
        await stopping
        await relay.stream.next_item("goodbye")
        relay.stream.end()
        await relay.running

        assert relay.stream.items("credit") == []


async def test_what_does_not_finish_within_the_grace_is_given_back() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        stopping = asyncio.ensure_future(relay.daemon.stop(grace_seconds=10))
        await relay.stream.next_item("draining")
        await relay.clock.advance_async(9_900)
        assert relay.work.stopped == []
        await relay.clock.advance_async(100)
        await stopping
        released = await relay.released()
        await relay.stream.next_item("goodbye")
        relay.stream.end()
        await relay.running

        assert released.reason == daemon_plane_pb2.RELEASE_REASON_SHUTDOWN
        assert relay.work.stopped == ["j-1"]


async def test_cancelling_run_gives_everything_back() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        relay.running.cancel()
        released = await relay.released()
        await relay.stream.next_item("goodbye")
        relay.stream.end()
        with pytest.raises(asyncio.CancelledError):
            await relay.running

        assert list(released.leases) == [lease_ref("j-1")]


async def test_a_revoked_device_ends_with_the_reason() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        relay.stream.end(refusal("DEVICE_REVOKED", grpc.StatusCode.PERMISSION_DENIED))
        with pytest.raises(RelayError) as caught:
            await relay.running

        assert caught.value.reason == "DEVICE_REVOKED"
        assert "ask the relay's operator" in caught.value.advice
        assert relay.work.stopped == ["j-1"]


def test_a_pin_that_does_not_verify_is_refused() -> None:
    from relay_service.client import Daemon

    forged = type(SITE_KEYS.public)(
        SITE_KEYS.public.identity, DEVICE_KEYS.public.encryption, SITE_KEYS.public.encryption_signature
    )
    with pytest.raises(ValueError, match="has not signed"):
        Daemon("127.0.0.1:1", runner_id="d", keys=DEVICE_KEYS, pins=[forged], matrix=[], handlers={})
