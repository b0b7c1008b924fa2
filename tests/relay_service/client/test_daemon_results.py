"""Results until the relay has them."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from relay_service.client import Daemon
from relay_service.client.spool import Spool, SpoolError
from relay_service.client.wire import timestamp_of
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.errors import ServiceError
from tests.harness.waiting import eventually
from tests.relay_service.client.real_relay import DEVICE_KEYS
from tests.relay_service.client.scripted_device import START_MS, lease_ref, played_relay

ACTIVE = job_pb2.LEASE_STATE_ACTIVE
ACCEPTED = daemon_plane_pb2.CompleteJobResponse(accepted=True)
DUPLICATE = daemon_plane_pb2.CompleteJobResponse(accepted=False, duplicate=True)


def refusal(reason: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION) -> ServiceError:
    return ServiceError(code, reason, "no")


def results(folder: Path) -> list[Path]:
    return list(folder.glob("*.result"))


async def spooled(folder: Path, lease: str = "l-1", *, deadline_at_ms: int = START_MS + 1) -> Any:
    """A result that an earlier process has left."""
    request = daemon_plane_pb2.CompleteJobRequest(
        lease=lease_ref("j-1", lease),
        envelope=job_pb2.SealedEnvelope(ciphertext=b"sealed", deadline_time=timestamp_of(deadline_at_ms)),
        disposition=job_pb2.DISPOSITION_OK,
    )
    spool = Spool(folder)
    spool.open()
    await spool.put(request)
    spool.close()
    return request


async def test_a_result_is_on_the_disk_before_it_is_sent_and_until_it_is_answered(tmp_path: Path) -> None:
    async with played_relay(spool_dir=tmp_path) as relay:
        await relay.start("j-1")
        relay.work.gate.set()
        call = await relay.call()
        (file,) = results(tmp_path)
        assert daemon_plane_pb2.CompleteJobRequest.FromString(file.read_bytes()) == call.complete_job
        assert relay.daemon.undelivered == 1

        await relay.reply(call, complete_job=ACCEPTED)
        await eventually(lambda: results(tmp_path) == [])
        assert relay.daemon.undelivered == 0


@pytest.mark.parametrize("answer", [ACCEPTED, DUPLICATE])
async def test_what_an_earlier_process_left_is_delivered_once_its_lease_is_confirmed(
    tmp_path: Path, answer: Any
) -> None:
    left = await spooled(tmp_path)
    async with played_relay(spool_dir=tmp_path) as relay:
        assert list(relay.hello.inventory.leases) == [lease_ref("j-1")]
        assert relay.stream.items("call") == []
        await relay.verdict("j-1", ACTIVE, seconds=60)
        call = await relay.call()
        assert call.complete_job == left
        await relay.reply(call, complete_job=answer)

        await eventually(lambda: results(tmp_path) == [])


@pytest.mark.parametrize("state", [job_pb2.LEASE_STATE_LOST, job_pb2.LEASE_STATE_COMPLETED])
async def test_what_the_relay_does_not_want_any_more_is_dropped(tmp_path: Path, state: Any) -> None:
    await spooled(tmp_path)
    async with played_relay(spool_dir=tmp_path) as relay:
        await relay.verdict("j-1", state)

        await eventually(lambda: results(tmp_path) == [])
        assert relay.stream.items("call") == []


async def test_a_result_whose_envelope_has_expired_is_not_kept(tmp_path: Path) -> None:
    await spooled(tmp_path, deadline_at_ms=START_MS)
    async with played_relay(spool_dir=tmp_path) as relay:
        assert list(relay.hello.inventory.leases) == []
        assert results(tmp_path) == []


@pytest.mark.parametrize(
    "reason",
    ["STALE_LEASE", "NOT_LEASE_HOLDER", "JOB_NOT_FOUND", "ENVELOPE_EXPIRED", "ENVELOPE_MISDIRECTED"],
)
async def test_a_result_that_is_refused_is_discarded(tmp_path: Path, reason: str) -> None:
    async with played_relay(spool_dir=tmp_path) as relay:
        await relay.start("j-1")
        relay.work.gate.set()
        await relay.reply(await relay.call(), error=refusal(reason).to_status("d"))

        await eventually(lambda: results(tmp_path) == [])
        assert relay.daemon.undelivered == 0


async def test_a_result_that_finds_nobody_is_sent_again(tmp_path: Path) -> None:
    async with played_relay(spool_dir=tmp_path) as relay:
        await relay.start("j-1")
        relay.work.gate.set()
        first = await relay.call()
        error = refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE).to_status("d")
        await relay.reply(first, error=error)
        # The first pause is at most two seconds.
        await relay.advance_until(lambda: len(relay.stream.items("call")) == 2)
        second = await relay.call()

        assert second.complete_job == first.complete_job
        assert len(results(tmp_path)) == 1


async def test_a_result_that_was_lost_with_the_stream_goes_by_unary_call(tmp_path: Path) -> None:
    async with played_relay(
        spool_dir=tmp_path, unary={"CompleteJob": lambda _: ACCEPTED.SerializeToString()}
    ) as relay:
        await relay.start("j-1")
        relay.work.gate.set()
        call = await relay.call()
        relay.stream.end(refusal("SERVER_DRAINING", grpc.StatusCode.UNAVAILABLE))
        await eventually(lambda: results(tmp_path) == [])

        ((_, _, body),) = relay.server.seen("CompleteJob")
        assert body == call.complete_job.SerializeToString()


async def test_the_lease_of_a_result_on_its_way_is_renewed(tmp_path: Path) -> None:
    async with played_relay(spool_dir=tmp_path) as relay:
        await relay.start("j-1")
        relay.work.gate.set()
        await relay.call()
        await relay.clock.advance_async(22_000)

        assert list((await relay.stream.next_item("renew")).leases) == [lease_ref("j-1")]


async def test_a_cancel_that_comes_after_the_work_changes_nothing(tmp_path: Path) -> None:
    async with played_relay(spool_dir=tmp_path) as relay:
        await relay.start("j-1")
        relay.work.gate.set()
        call = await relay.call()
        await relay.verdict("j-1", job_pb2.LEASE_STATE_CANCEL_REQUESTED)
        await relay.reply(call, complete_job=ACCEPTED)
        await eventually(lambda: relay.daemon.undelivered == 0)

        assert call.complete_job.disposition == job_pb2.DISPOSITION_OK
        assert len(relay.stream.items("call")) == 1


async def test_stop_waits_for_results_and_leaves_in_the_spool_what_cannot_be_delivered(
    tmp_path: Path,
) -> None:
    async with played_relay(spool_dir=tmp_path) as relay:
        await relay.start("j-1")
        relay.work.gate.set()
        await relay.call()
        stopping = asyncio.ensure_future(relay.daemon.stop())
        await eventually(stopping.done)
        await relay.advance_until(lambda: relay.stream.items("goodbye"))
        relay.stream.end()
        await relay.running

    assert len(results(tmp_path)) == 1


async def test_two_daemons_do_not_share_a_spool(tmp_path: Path) -> None:
    async with played_relay(spool_dir=tmp_path):
        second = Daemon(
            "127.0.0.1:1",
            runner_id="desk",
            keys=DEVICE_KEYS,
            pins=[],
            matrix=[],
            handlers={},
            spool_dir=tmp_path,
        )
        with pytest.raises(SpoolError, match="give each its own"):
            await second.run()


async def test_a_spool_that_cannot_be_written_does_not_keep_a_result_back(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    async with played_relay(spool_dir=folder) as relay:
        (folder / "lock").unlink()
        folder.rmdir()
        await relay.start("j-1")
        relay.work.gate.set()

        assert (await relay.completed()).lease == lease_ref("j-1")
