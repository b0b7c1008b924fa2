"""Everything that can happen at a relay, once, so that every message of both planes is sent."""

import asyncio
from dataclasses import replace
from typing import Any

from relay_service.core.projection import ProjectedSite, SuccessionLink
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from tests.relay_service.planes.scene import claim, release
from tests.relay_service.planes.twins import ask_on_stream
from tests.relay_service.raw_client import RawParty, RawStream
from tests.relay_service.raw_pairing import refusal_of
from tests.relay_service.relay_fixture import DAY_MS, START_MS, keys_of, ref, timestamp
from tests.relay_service.routes.everything import Everything

Ack = site_plane_pb2.AckResultsRequest
BOTH_INLINE = [session_pb2.CAPABILITY_INLINE_PAYLOAD, session_pb2.CAPABILITY_INLINE_RESULT]
NEVER_WAS = job_pb2.LeaseRef(job_id="never-was", lease_id="never-was")


async def happen(all_: Everything) -> None:
    """All of it, in an order in which each step leaves what the next needs."""
    await _notices_by_calls(all_)
    amber = await all_.site("amber").connect(capabilities=BOTH_INLINE)
    birch = await all_.site("birch").connect(capabilities=BOTH_INLINE)
    cedar = await all_.site("cedar").connect()
    sven = await all_.device("sven").connect(limit=9)
    idle = await all_.device("idle").connect(limit=0)
    await all_.device("sven").call("GetSites", daemon_plane_pb2.GetSitesRequest())
    await _a_job_on_streams(all_, amber)
    await _a_job_of_another_site(all_, birch)
    await _a_job_by_calls(all_)
    await _jobs_that_end_otherwise(all_, amber)
    await _calls_on_streams(all_, amber)
    await _refusals(all_, amber, cedar)
    await _pairings(all_)
    await _changes(all_, idle)
    await _endings(all_, sven, [amber, birch, cedar, idle])


async def _a_job_on_streams(all_: Everything, amber: RawStream) -> None:
    """Olga's job on pavel's device, every step of it on the two streams."""
    pavel = await all_.device("pavel").connect(limit=1, capabilities=BOTH_INLINE)
    await pavel.next("verdicts")
    stub = all_.stub("amber", "owner-olga", "amber-shared", purpose="writing", streaming=True)
    await ask_on_stream(amber, "EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=stub))
    lease = ref(await pavel.next("granted"))
    await pavel.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await amber.next("notice")
    await ask_on_stream(amber, "SealPayload", all_.sealing("amber", "pavel", lease, b"sealed-for-pavel"))
    assert (await pavel.next("payload_ready")).envelope.ciphertext == b"sealed-for-pavel"
    await pavel.send(renew=daemon_plane_pb2.Renew(renewal_id=5, leases=[lease, NEVER_WAS]))
    await pavel.next("verdicts")
    await ask_on_stream(pavel, "CompleteJob", all_.completing("amber", "pavel", lease, b"answer-of-pavel"))
    repeated = all_.completing("amber", "pavel", lease, b"answer-of-pavel")
    assert (await ask_on_stream(pavel, "CompleteJob", repeated)).complete_job.duplicate
    assert (await amber.next("notice")).result_ready.runner_owner == "owner-pavel"
    await pavel.send(goodbye=session_pb2.Goodbye())
    await pavel.end()


async def _a_job_of_another_site(all_: Everything, birch: RawStream) -> None:
    """Quentin's job on pavel's device; its payload is fetched on the stream."""
    await all_.publish("birch", "member-quentin", "birch-shared")
    pavel = await all_.device("pavel").connect(limit=1)
    lease = ref(await pavel.next("granted"))
    await birch.next("notice")
    await ask_on_stream(birch, "SealPayload", all_.sealing("birch", "pavel", lease, b"sealed-by-birch"))
    assert (await pavel.next("payload_ready")).size_bytes == 15
    fetched = await ask_on_stream(pavel, "FetchPayload", daemon_plane_pb2.FetchPayloadRequest(lease=lease))
    assert fetched.fetch_payload.envelope.ciphertext == b"sealed-by-birch"
    await ask_on_stream(pavel, "ReleaseLeases", release(lease))
    assert (await birch.next("notice")).job_requeued.count == 1
    pavel.call.cancel()
    await all_.relay.ended("daemon", "lost")


async def _a_job_by_calls(all_: Everything) -> None:
    """Olga's job on her own device, by unary calls alone."""
    olga = all_.device("olga")
    await all_.publish("amber", "owner-olga", "amber-private", audience=job_pb2.AUDIENCE_PRIVATE)
    lease = await all_.claim("olga")
    await all_.site("amber").call("SealPayload", all_.sealing("amber", "olga", lease, b"sealed-for-olga"))
    await olga.call("FetchPayload", daemon_plane_pb2.FetchPayloadRequest(lease=lease))
    await olga.call("GetSites", daemon_plane_pb2.GetSitesRequest())
    await olga.call("CompleteJob", all_.completing("amber", "olga", lease, b"answer-of-olga"))
    assert (
        await olga.call("CompleteJob", all_.completing("amber", "olga", lease, b"answer-of-olga"))
    ).duplicate


async def _jobs_that_end_otherwise(all_: Everything, amber: RawStream) -> None:
    """Withdrawn while held, refused, never sealed, out of time, declined by the policy."""
    olga = all_.device("olga")
    await all_.publish("amber", "owner-olga", "amber-cancelled", audience=job_pb2.AUDIENCE_PRIVATE)
    lease = await all_.claim("olga", "to cancel")
    stream = await olga.connect(limit=0, inventory={"leases": [lease]})
    await all_.site("amber").call("CancelJob", site_plane_pb2.CancelJobRequest(job_id="amber-cancelled"))
    held = await all_.site("amber").call("GetJob", site_plane_pb2.GetJobRequest(job_id="amber-cancelled"))
    assert (held.cancelled, held.lease_id) == (True, lease.lease_id)
    assert (await stream.next("verdicts")).verdicts
    renew = daemon_plane_pb2.RenewLeasesRequest(leases=[lease, NEVER_WAS])
    assert len((await olga.call("RenewLeases", renew)).verdicts) == 2
    await stream.send(cancel_ack=daemon_plane_pb2.CancelAck(leases=[lease]))
    assert (await olga.call("ReleaseLeases", release(lease))).job_ids == ["amber-cancelled"]
    stream.call.cancel()
    for job_id, fields in (
        ("amber-refused", {}),
        ("amber-unsealed", {}),
        ("declined-by-policy", {}),
        ("amber-brief", {"deadline_time": timestamp(START_MS + 15_000)}),
    ):
        await all_.publish("amber", "owner-olga", job_id, audience=job_pb2.AUDIENCE_PRIVATE, **fields)
    refused = await all_.claim("olga", "to refuse")
    await olga.call("ReleaseLeases", release(refused, reason=daemon_plane_pb2.RELEASE_REASON_REFUSED))
    waiting = await all_.claim("olga", "to let lapse")
    await all_.relay.pass_time(20_000, alive=[amber])
    lost = await olga.call("RenewLeases", daemon_plane_pb2.RenewLeasesRequest(leases=[waiting]))
    assert lost.verdicts[0].end_reason
    job = site_plane_pb2.GetJobRequest(job_id=waiting.job_id)
    assert (await all_.site("amber").call("GetJob", job)).seal_attempts
    await olga.call("ClaimJobs", claim("what is left", max_jobs=9))


async def _calls_on_streams(all_: Everything, amber: RawStream) -> None:
    """Every call that can ride a site's stream and was not yet made."""
    stubs = [
        all_.stub("amber", "owner-olga", "amber-batch"),
        all_.stub("birch", "owner-olga", "amber-batch-2"),
    ]
    for caller in (None, amber):
        request = site_plane_pb2.EnqueueJobsRequest(stubs=stubs)
        if caller is None:
            await all_.site("amber").call("EnqueueJobs", request)
        else:
            await ask_on_stream(caller, "EnqueueJobs", request)
    for job_id in ("amber-shared", "amber-batch", "amber-cancelled"):
        for method, kind in (
            ("GetJob", site_plane_pb2.GetJobRequest),
            ("GetResult", site_plane_pb2.GetResultRequest),
            ("CancelJob", site_plane_pb2.CancelJobRequest),
        ):
            reply = await ask_on_stream(amber, method, kind(job_id=job_id))
            answered: Any = all_.site("amber")
            if reply.WhichOneof("outcome") != "error":
                await answered.call(method, kind(job_id=job_id))
    await ask_on_stream(amber, "AckResults", Ack(job_ids=["amber-shared"]))
    await all_.site("amber").call("AckResults", Ack(job_ids=["amber-private"]))


async def _refusals(all_: Everything, amber: RawStream, cedar: RawStream) -> None:
    """Parties that ask for what is not theirs, or wrongly."""
    lease = job_pb2.LeaseRef(job_id="birch-shared", lease_id="lease-2")
    for stream, site in ((amber, all_.site("amber")), (cedar, all_.site("cedar"))):
        for method, kind in (
            ("GetJob", site_plane_pb2.GetJobRequest),
            ("GetResult", site_plane_pb2.GetResultRequest),
        ):
            await ask_on_stream(stream, method, kind(job_id="no such job"))
            await site.refused(method, kind(job_id="no such job"))
        await site.refused("GetJob", site_plane_pb2.GetJobRequest(job_id="\x00"))
        await site.refused("ListNotices", site_plane_pb2.ListNoticesRequest(page_token="spoilt"))
        declined = all_.stub(site.caller.removeprefix("site-"), "member-nobody", "x", purpose="unmapped")
        await site.refused("EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=declined))
        await site.refused("EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=all_.stub("birch", "x", "x")))
    stream = await all_.device("olga").connect(limit=0)
    for unheld in (lease, NEVER_WAS):
        await ask_on_stream(stream, "FetchPayload", daemon_plane_pb2.FetchPayloadRequest(lease=unheld))
    await stream.send_items(stream.item(heartbeat={}), stream.item(cancel_ack={}))
    assert (await stream.next("frame_error")).item_index == 1
    for name in ("sven", "idle", "olga"):
        device = all_.device(name)
        await device.refused("FetchPayload", daemon_plane_pb2.FetchPayloadRequest(lease=lease))
        await device.refused("FetchPayload", daemon_plane_pb2.FetchPayloadRequest(lease=NEVER_WAS))
        await device.call("ReleaseLeases", release(lease))
        await device.call("RenewLeases", daemon_plane_pb2.RenewLeasesRequest(leases=[lease]))
        await device.refused("ClaimJobs", claim(max_jobs=1_000))
    for party in (
        all_.relay.site("site-amber", keys=keys_of("stranger"), channel=all_.channel("stranger")),
        all_.relay.daemon("runner-sven", keys=keys_of("stranger"), channel=all_.channel("stranger")),
    ):
        await _unproven(party)


async def _unproven(party: RawParty) -> None:
    """Somebody without the key of the name: on a stream, by a call, and with no protocol named."""
    stream = party.open()
    await party.greet(stream)
    await stream.end()
    site = party.service == "SitePlaneService"
    method = "ListNotices" if site else "GetSites"
    request: Any = site_plane_pb2.ListNoticesRequest() if site else daemon_plane_pb2.GetSitesRequest()
    await party.refused(method, request)
    await party.refused(method, request, metadata=())


async def _notices_by_calls(all_: Everything) -> None:
    """A page of an inbox that is longer, and a stream whose lane is shorter."""
    birch, ended = all_.site("birch"), [f"birch-ended-{number}" for number in range(30)]
    for job_id in ended:
        await all_.publish("birch", "member-quentin", job_id)
        await birch.call("CancelJob", site_plane_pb2.CancelJobRequest(job_id=job_id))
    page = await birch.call("ListNotices", site_plane_pb2.ListNoticesRequest(page_size=2))
    assert page.next_page_token
    stream = await birch.connect(process_id="process-2")
    if not all_.has_two_relays:
        # From a Valkey server rows come in pages, with time between them to send the earlier ones.
        await stream.next("resync_required")
    rows = [await stream.next("notice") for _ in ended]
    await birch.call("AckResults", Ack(notice_ids=[row.notice_id for row in rows]))
    await stream.send(goodbye=session_pb2.Goodbye())
    await stream.end()


async def _pairings(all_: Everything) -> None:
    """One device that pavel takes for his own, one that is turned away, one that is too late."""
    desk, taken = all_.relay.server.pairing, all_.new_device("new-of-pavel")
    started = await taken.start()
    watch = taken.watch(started.device_code)
    await watch.next()
    await desk.approve(started.user_code, "owner-pavel", "operator")
    assert (await watch.ends_with()).approval.owner == "owner-pavel"
    assert (await taken.poll(started.device_code)).approval.owner == "owner-pavel"
    turned_away = all_.new_device("new-of-nobody")
    denied = await turned_away.start()
    await desk.deny(denied.user_code, "operator")
    await turned_away.poll(denied.device_code)
    await refusal_of(turned_away.start(label=""))
    await refusal_of(turned_away.poll(started.device_code))
    await turned_away.watch("A" * 43).ends_with()


async def _changes(all_: Everything, idle: RawStream) -> None:
    """Directories: amber moves to a new key, and olga pauses cedar."""
    old, new = keys_of("site-amber"), keys_of("amber-new")
    statement = f"byollm/v1/site-succession:{old.key_id}:{new.key_id}".encode()
    link = SuccessionLink(old.public, old.signer.sign(statement))
    amber = ProjectedSite("site-amber", new.public, (link,), START_MS + 9 * DAY_MS)
    current = all_.relay.source.current
    paused = tuple(
        replace(consent, paused=(consent.owner, consent.site_id) == ("owner-olga", "site-cedar"))
        for consent in current.consents
    )
    all_.change(sites=(amber, *current.sites[1:]), consents=paused)
    directory = (await idle.next("sites_changed")).directory
    assert {site.awaiting_consent for site in directory.sites} == {True, False}
    answer = await all_.device("olga").call("GetSites", daemon_plane_pb2.GetSitesRequest())
    assert answer.directory == directory
    late = all_.new_device("late")
    started = await late.start()
    await all_.relay.server.pairing.approve(started.user_code, "owner-olga", "operator")
    await late.watch(started.device_code).ends_with()
    await late.poll(started.device_code)


async def _endings(all_: Everything, sven: RawStream, others: list[RawStream]) -> None:
    """Bad items, a device cut off, and a relay that leaves."""
    for stream in others:
        await stream.send_bytes(b"\xff")
        await stream.next("frame_error")
        await stream.settle()
    current = all_.relay.source.current
    all_.change(
        devices=tuple(
            replace(device, revoked=device.runner_id == "runner-sven") for device in current.devices
        )
    )
    await sven.end()
    await all_.device("sven").refused("GetSites", daemon_plane_pb2.GetSitesRequest())
    relays = {all_.relay.server, getattr(all_.relay, "device_server", all_.relay.server)}
    leaving = [asyncio.ensure_future(server.relay.drain()) for server in relays]
    for stream in others:
        await stream.next("drain_notice")
    await all_.relay.pass_time(20_000)
    await asyncio.gather(*leaving)
    for stream in others:
        await stream.end()
