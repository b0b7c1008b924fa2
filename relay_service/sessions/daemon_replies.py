"""Calls of a device that ride its stream, each answered as its unary twin would be."""

from relay_service.planes import refusals
from relay_service.planes.daemon_calls import DaemonCalls
from relay_service.sessions.framing import DOMAIN
from sealwork.relay.v1 import daemon_plane_pb2
from service_common.call_failures import refusal_of
from service_common.sessions.limits import SessionTimes

_NO_JOBS: frozenset[str] = frozenset()


def jobs_of(call: daemon_plane_pb2.DaemonCall) -> frozenset[str]:
    """The jobs that a call has to do with."""
    match call.WhichOneof("request"):
        case "release_leases":
            return frozenset(lease.job_id for lease in call.release_leases.leases)
        case None:
            return _NO_JOBS
        case name:
            return frozenset((getattr(call, name).lease.job_id,))


async def answer(
    calls: DaemonCalls, runner_id: str, call: daemon_plane_pb2.DaemonCall, times: SessionTimes
) -> daemon_plane_pb2.DaemonReply:
    """The reply to one call; an error is a reply too."""
    try:
        return await _answer(calls, runner_id, call, times.inline_body_bytes)
    except Exception as error:  # noqa: BLE001 - as the unary call maps them
        refusal = refusal_of(error, "a call on a device's stream")
        return daemon_plane_pb2.DaemonReply(id=call.id, error=refusal.to_status(DOMAIN))


async def _answer(
    calls: DaemonCalls, runner_id: str, call: daemon_plane_pb2.DaemonCall, limit: int
) -> daemon_plane_pb2.DaemonReply:
    reply = daemon_plane_pb2.DaemonReply(id=call.id)
    match call.WhichOneof("request"):
        case "fetch_payload":
            fetched = await calls.fetch_payload(runner_id, call.fetch_payload)
            refusals.refuse_large_body(fetched.envelope, limit)
            reply.fetch_payload.CopyFrom(fetched)
        case "complete_job":
            refusals.refuse_large_body(call.complete_job.envelope, limit)
            reply.complete_job.CopyFrom(await calls.complete_job(runner_id, call.complete_job))
        case "release_leases":
            reply.release_leases.CopyFrom(await calls.release_leases(runner_id, call.release_leases))
        case _:
            raise refusals.not_implemented("this relay does not know that call; use the unary method")
    return reply
