"""How WorkerService wraps what every stream says into its own messages."""

from sealwork.durable.v1 import worker_service_pb2
from sealwork.session.v1 import session_pb2

DOMAIN = "durable.sealwork.dev"

WorkerItem = worker_service_pb2.WorkerItem
WorkerServerItem = worker_service_pb2.WorkerServerItem


class WorkerFraming:
    """Frames of WorkerService."""

    domain = DOMAIN

    def frame(
        self, seq: int, ack_seq: int, items: list[WorkerServerItem]
    ) -> worker_service_pb2.WorkerServiceSessionResponse:
        """A frame from the service."""
        return worker_service_pb2.WorkerServiceSessionResponse(seq=seq, ack_seq=ack_seq, items=items)

    def challenge(self, challenge: session_pb2.Challenge) -> WorkerServerItem:
        """See the session protocol."""
        return WorkerServerItem(challenge=challenge)

    def welcome(self, welcome: session_pb2.Welcome) -> WorkerServerItem:
        """See the session protocol."""
        return WorkerServerItem(welcome=welcome)

    def heartbeat(self, heartbeat: session_pb2.Heartbeat) -> WorkerServerItem:
        """See the session protocol."""
        return WorkerServerItem(heartbeat=heartbeat)

    def frame_error(self, error: session_pb2.FrameError) -> WorkerServerItem:
        """See the session protocol."""
        return WorkerServerItem(frame_error=error)

    def resync_required(self, resync: session_pb2.ResyncRequired) -> WorkerServerItem:
        """See the session protocol."""
        return WorkerServerItem(resync_required=resync)

    def drain_notice(self, drain: session_pb2.DrainNotice) -> WorkerServerItem:
        """See the session protocol."""
        return WorkerServerItem(drain_notice=drain)
