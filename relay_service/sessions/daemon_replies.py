"""Calls of a device that ride its stream, each answered as its unary twin would be."""

from relay_service.planes import refusals
from relay_service.planes.daemon_calls import DaemonCalls
from relay_service.sessions.framing import DOMAIN
from sealwork.relay.v1 import daemon_plane_pb2
from service_common.errors import ServiceError

# Room for everything in a call that is not ciphertext.
_HEADROOM_BYTES = 4_096


async def answer(
    calls: DaemonCalls, runner_id: str, call: daemon_plane_pb2.DaemonCall, limit: int
) -> daemon_plane_pb2.DaemonReply:
    """The reply to one call; an error is a reply too."""
    try:
        if call.ByteSize() > limit + _HEADROOM_BYTES:
            raise refusals.body_too_large(limit)
        return await _answer(calls, runner_id, call, limit)
    except ServiceError as error:
        return daemon_plane_pb2.DaemonReply(id=call.id, error=error.to_status(DOMAIN))


async def _answer(
    calls: DaemonCalls, runner_id: str, call: daemon_plane_pb2.DaemonCall, limit: int
) -> daemon_plane_pb2.DaemonReply:
    reply = daemon_plane_pb2.DaemonReply(id=call.id)
    match call.WhichOneof("request"):
        case "fetch_payload":
            fetched = await calls.fetch_payload(runner_id, call.fetch_payload)
            if len(fetched.envelope.ciphertext) > limit:
                raise refusals.body_too_large(limit)
            reply.fetch_payload.CopyFrom(fetched)
        case "complete_job":
            reply.complete_job.CopyFrom(await calls.complete_job(runner_id, call.complete_job))
        case "release_leases":
            reply.release_leases.CopyFrom(await calls.release_leases(runner_id, call.release_leases))
        case _:
            raise refusals.not_implemented("this relay does not know that call; use the unary method")
    return reply
