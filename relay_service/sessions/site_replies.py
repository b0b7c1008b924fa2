"""Calls of a site that ride its stream, each answered as its unary twin would be."""

from relay_service.planes import refusals
from relay_service.planes.site_calls import SiteCalls
from relay_service.sessions.framing import DOMAIN
from sealwork.relay.v1 import site_plane_pb2
from service_common.call_failures import refusal_of
from service_common.sessions.limits import SessionTimes

_NO_JOBS: frozenset[str] = frozenset()


def jobs_of(call: site_plane_pb2.SiteCall) -> frozenset[str] | None:
    """The jobs that a call has to do with; None when only the store can tell."""
    match call.WhichOneof("request"):
        case "enqueue_job":
            return frozenset((call.enqueue_job.stub.id,))
        case "enqueue_jobs":
            return frozenset(stub.id for stub in call.enqueue_jobs.stubs)
        case "ack_results":
            # A notice leads to its job, and a job that has ended makes room for another of its id.
            return None if call.ack_results.notice_ids else frozenset(call.ack_results.job_ids)
        case None:
            return _NO_JOBS
        case name:
            return frozenset((getattr(call, name).job_id,))


async def answer(
    calls: SiteCalls, site_id: str, call: site_plane_pb2.SiteCall, times: SessionTimes
) -> site_plane_pb2.SiteReply:
    """The reply to one call; an error is a reply too."""
    try:
        reply = await _answer(calls, site_id, call, times.inline_body_bytes)
        # Of a hundred stubs each may be refused at length.
        if reply.ByteSize() > times.reply_bytes:
            raise refusals.body_too_large(times.reply_bytes)
        return reply
    except Exception as error:  # noqa: BLE001 - as the unary call maps them
        refusal = refusal_of(error, "a call on a site's stream")
        return site_plane_pb2.SiteReply(id=call.id, error=refusal.to_status(DOMAIN))


async def _answer(
    calls: SiteCalls, site_id: str, call: site_plane_pb2.SiteCall, limit: int
) -> site_plane_pb2.SiteReply:
    reply = site_plane_pb2.SiteReply(id=call.id)
    match call.WhichOneof("request"):
        case "enqueue_job":
            reply.enqueue_job.CopyFrom(await calls.enqueue_job(site_id, call.enqueue_job))
        case "enqueue_jobs":
            reply.enqueue_jobs.CopyFrom(await calls.enqueue_jobs(site_id, call.enqueue_jobs))
        case "seal_payload":
            refusals.refuse_large_body(call.seal_payload.envelope, limit)
            reply.seal_payload.CopyFrom(await calls.seal_payload(site_id, call.seal_payload))
        case "ack_results":
            reply.ack_results.CopyFrom(await calls.ack_results(site_id, call.ack_results))
        case "cancel_job":
            reply.cancel_job.CopyFrom(await calls.cancel_job(site_id, call.cancel_job))
        case "get_job":
            reply.get_job.CopyFrom(await calls.get_job(site_id, call.get_job))
        case "get_result":
            result = await calls.get_result(site_id, call.get_result)
            refusals.refuse_large_body(result.envelope, limit)
            reply.get_result.CopyFrom(result)
        case _:
            raise refusals.not_implemented("this relay does not know that call; use the unary method")
    return reply
