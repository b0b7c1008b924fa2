"""Calls that ride a stream, by the name of their unary twin."""

from typing import Any

from sealwork.relay.v1 import daemon_plane_pb2, site_plane_pb2
from tests.relay_service.planes.scene import caller
from tests.relay_service.raw_client import RawStream

__all__ = ["TWINS", "ask_on_stream", "caller"]

TWINS = {
    "EnqueueJob": "enqueue_job",
    "EnqueueJobs": "enqueue_jobs",
    "SealPayload": "seal_payload",
    "AckResults": "ack_results",
    "CancelJob": "cancel_job",
    "GetJob": "get_job",
    "GetResult": "get_result",
    "FetchPayload": "fetch_payload",
    "CompleteJob": "complete_job",
    "ReleaseLeases": "release_leases",
}
_OF_DEVICES = {"FetchPayload", "CompleteJob", "ReleaseLeases"}
_ID = 2**63 + 5


async def ask_on_stream(stream: RawStream, method: str, request: Any) -> Any:
    """The reply to a call on a stream."""
    kind: Any = daemon_plane_pb2.DaemonCall if method in _OF_DEVICES else site_plane_pb2.SiteCall
    await stream.send(call=kind(**{"id": _ID, TWINS[method]: request}))
    reply = await stream.next("reply")
    assert reply.id == _ID
    assert reply.WhichOneof("outcome") in {"error", TWINS[method]}
    return reply
