"""Calls on one stream: a slow one holds up nothing that has nothing to do with it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawStream
from tests.relay_service.relay_fixture import RelayUnderTest, ref

MOST_AT_ONCE = 16


class Gate:
    """An operation of a store that does not go on before it is let.

    Attributes:
        waiting: how many of its calls wait at this moment.
    """

    def __init__(self, patch: pytest.MonkeyPatch, store: Any, operation: str) -> None:
        self.waiting = 0
        self._open = asyncio.Event()
        self._operation: Callable[..., Any] = getattr(store, operation)
        patch.setattr(store, operation, self._call)

    async def _call(self, *args: Any, **options: Any) -> Any:
        self.waiting += 1
        await self._open.wait()
        self.waiting -= 1
        return await self._operation(*args, **options)

    def open(self) -> None:
        self._open.set()

    async def holds(self, count: int) -> None:
        await eventually(lambda: self.waiting == count, describe=lambda: f"{count}, are {self.waiting}")


def site_store(relay: RelayUnderTest) -> Any:
    return relay.server.relay.store


def device_store(relay: RelayUnderTest) -> Any:
    return getattr(relay, "device_server", relay.server).relay.store


def enqueue(relay: RelayUnderTest, number: int, job_id: str) -> site_plane_pb2.SiteCall:
    request = site_plane_pb2.EnqueueJobRequest(stub=relay.stub(job_id))
    return site_plane_pb2.SiteCall(id=number, enqueue_job=request)


def cancel(number: int, job_id: str) -> site_plane_pb2.SiteCall:
    return site_plane_pb2.SiteCall(id=number, cancel_job=site_plane_pb2.CancelJobRequest(job_id=job_id))


def seal(relay: RelayUnderTest, number: int, lease: job_pb2.LeaseRef) -> site_plane_pb2.SiteCall:
    request = site_plane_pb2.SealPayloadRequest(
        job_id=lease.job_id, lease_id=lease.lease_id, envelope=relay.payload()
    )
    return site_plane_pb2.SiteCall(id=number, seal_payload=request)


def complete(relay: RelayUnderTest, number: int, lease: job_pb2.LeaseRef) -> daemon_plane_pb2.DaemonCall:
    request = daemon_plane_pb2.CompleteJobRequest(
        lease=lease, envelope=relay.result(), disposition=job_pb2.DISPOSITION_OK
    )
    return daemon_plane_pb2.DaemonCall(id=number, complete_job=request)


async def replies(stream: RawStream, count: int) -> list[int]:
    """The numbers of the next replies, in the order in which they came."""
    return [(await stream.next("reply")).id for _ in range(count)]


async def send(stream: RawStream, *calls: Any) -> None:
    """Sends calls in one frame."""
    await stream.send_items(*(stream.item(call=call) for call in calls))


async def granted(relay: RelayUnderTest, device: RawStream, *job_ids: str) -> list[job_pb2.LeaseRef]:
    """Leases of a device on new jobs, acknowledged."""
    await relay.enqueue(*job_ids)
    leases = [ref(await device.next("granted")) for _ in job_ids]
    await device.send(grant_ack=daemon_plane_pb2.GrantAck(leases=leases))
    await device.settle()
    return sorted(leases, key=lambda lease: lease.job_id)


async def test_a_seal_does_not_wait_for_a_burst_of_enqueues(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, device = await relay.site().connect(), await relay.daemon().connect(limit=1)
    (lease,) = await granted(relay, device, "job-0")
    gate = Gate(monkeypatch, site_store(relay), "enqueue")
    await send(site, *(enqueue(relay, number, f"job-{number}") for number in range(1, 11)))
    await gate.holds(10)
    await send(site, seal(relay, 11, lease))
    assert await replies(site, 1) == [11]
    assert (await device.next("payload_ready")).lease == lease
    gate.open()
    assert sorted(await replies(site, 10)) == [*range(1, 11)]


async def test_no_more_than_sixteen_are_under_way(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await relay.site().connect()
    gate = Gate(monkeypatch, site_store(relay), "enqueue")
    await send(site, *(enqueue(relay, number, f"job-{number}") for number in range(40)))
    await gate.holds(MOST_AT_ONCE)
    # The sender is held back by its own burst, and by nothing else.
    await site.send(heartbeat=session_pb2.Heartbeat(ping_id=99))
    gate.open()
    assert sorted(await replies(site, 40)) == [*range(40)]
    assert (await site.next("heartbeat")).pong_id == 99


async def test_jobs_of_a_burst_keep_their_order(relay: RelayUnderTest) -> None:
    site = await relay.site().connect(limit=0)
    names = [f"job-{number:03}" for number in range(200)]
    for start in range(0, 200, 50):
        batch = enumerate(names[start : start + 50], start)
        await send(site, *(enqueue(relay, number, name) for number, name in batch))
    assert sorted(await replies(site, 200)) == [*range(200)]
    jobs = await relay.store.jobs()
    assert [job.key.job_id for job in sorted(jobs, key=lambda job: job.sequence)] == names


async def test_calls_on_one_job_keep_their_order(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await relay.site().connect()
    gate = Gate(monkeypatch, site_store(relay), "enqueue")
    await send(site, enqueue(relay, 1, "job-1"), cancel(2, "job-1"))
    await gate.holds(1)
    assert not site.take("reply")
    gate.open()
    first, second = [await site.next("reply") for _ in range(2)]
    assert (first.id, first.enqueue_job.created) == (1, True)
    assert (second.id, second.cancel_job.cancelled) == (2, True)
    assert (await site.next("notice")).WhichOneof("notice") == "job_ended"


async def test_a_notice_is_settled_before_its_job_is_published_again(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await relay.site().connect()
    await relay.enqueue("job-1")
    await relay.cancel("job-1")
    notice = await site.next("notice")
    gate = Gate(monkeypatch, site_store(relay), "acknowledge")
    settle = site_plane_pb2.AckResultsRequest(notice_ids=[notice.notice_id])
    await send(site, site_plane_pb2.SiteCall(id=1, ack_results=settle), enqueue(relay, 2, "job-1"))
    await gate.holds(1)
    gate.open()
    first, second = [await site.next("reply") for _ in range(2)]
    assert (first.id, list(first.ack_results.settled_ids)) == (1, [notice.notice_id])
    assert (second.id, second.enqueue_job.created) == (2, True)


@pytest.mark.parametrize("kind", ["site", "daemon"])
async def test_a_goodbye_comes_after_every_answer(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "site":
        stream = await relay.site().connect()
        gate = Gate(monkeypatch, site_store(relay), "enqueue")
        calls: list[Any] = [enqueue(relay, number, f"job-{number}") for number in (1, 2)]
    else:
        stream = await relay.daemon().connect(limit=2)
        leases = await granted(relay, stream, "job-1", "job-2")
        for lease in leases:
            await relay.seal(lease)
        gate = Gate(monkeypatch, device_store(relay), "complete")
        calls = [complete(relay, number, lease) for number, lease in enumerate(leases, 1)]
    await send(stream, *calls)
    await stream.send(goodbye=session_pb2.Goodbye())
    await gate.holds(2)
    gate.open()
    assert await stream.end() is None
    assert sorted(reply.id for reply in stream.take("reply")) == [1, 2]


async def test_what_was_sent_before_the_client_hung_up_is_carried_out(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await relay.site().connect()
    gate = Gate(monkeypatch, site_store(relay), "enqueue")
    await send(site, *(enqueue(relay, number, f"job-{number}") for number in range(3)))
    await site.call.done_writing()
    await gate.holds(3)
    gate.open()
    for number in range(3):
        await relay.becomes(f"job-{number}", "queued")


async def test_a_renewal_waits_for_what_became_of_its_own_leases_alone(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await relay.daemon().connect(limit=2)
    done, other = await granted(relay, device, "job-1", "job-2")
    await relay.seal(done)
    await device.next("payload_ready")
    device.take("verdicts")
    gate = Gate(monkeypatch, device_store(relay), "complete")
    await send(device, complete(relay, 1, done))
    await gate.holds(1)
    await device.send(renew=daemon_plane_pb2.Renew(renewal_id=1, leases=[other]))
    assert (await device.next("verdicts")).renewal_id == 1
    await device.send(renew=daemon_plane_pb2.Renew(renewal_id=2, leases=[done, other]))
    gate.open()
    assert await replies(device, 1) == [1]
    answer = await device.next("verdicts")
    assert answer.renewal_id == 2
    assert [(each.lease, each.state) for each in answer.verdicts] == [(done, job_pb2.LEASE_STATE_COMPLETED)]


async def test_an_inventory_takes_nothing_back_that_a_call_before_it_has_finished(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await relay.daemon().connect(limit=1)
    (lease,) = await granted(relay, device, "job-1")
    await relay.seal(lease)
    await device.next("payload_ready")
    gate = Gate(monkeypatch, device_store(relay), "complete")
    await send(device, complete(relay, 1, lease))
    await device.send(inventory=daemon_plane_pb2.Inventory())
    await gate.holds(1)
    gate.open()
    assert (await device.next("reply")).complete_job.accepted
    await device.settle()
    assert await relay.state("job-1") == "done"
