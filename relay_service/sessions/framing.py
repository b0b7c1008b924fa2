"""How each plane wraps what every stream says into its own messages."""

from sealwork.relay.v1 import daemon_plane_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2

DOMAIN = "relay.sealwork.dev"

DaemonItem = daemon_plane_pb2.DaemonItem
DaemonServerItem = daemon_plane_pb2.DaemonServerItem
SiteItem = site_plane_pb2.SiteItem
SiteServerItem = site_plane_pb2.SiteServerItem


class DaemonFraming:
    """Frames of the daemon plane."""

    domain = DOMAIN

    def frame(
        self, seq: int, ack_seq: int, items: list[DaemonServerItem]
    ) -> daemon_plane_pb2.DaemonPlaneServiceSessionResponse:
        """A frame from the relay."""
        return daemon_plane_pb2.DaemonPlaneServiceSessionResponse(seq=seq, ack_seq=ack_seq, items=items)

    def challenge(self, challenge: session_pb2.Challenge) -> DaemonServerItem:
        """See the session protocol."""
        return DaemonServerItem(challenge=challenge)

    def welcome(self, welcome: session_pb2.Welcome) -> DaemonServerItem:
        """See the session protocol."""
        return DaemonServerItem(welcome=welcome)

    def heartbeat(self, heartbeat: session_pb2.Heartbeat) -> DaemonServerItem:
        """See the session protocol."""
        return DaemonServerItem(heartbeat=heartbeat)

    def frame_error(self, error: session_pb2.FrameError) -> DaemonServerItem:
        """See the session protocol."""
        return DaemonServerItem(frame_error=error)

    def resync_required(self, resync: session_pb2.ResyncRequired) -> DaemonServerItem:
        """See the session protocol."""
        return DaemonServerItem(resync_required=resync)

    def drain_notice(self, drain: session_pb2.DrainNotice) -> DaemonServerItem:
        """See the session protocol."""
        return DaemonServerItem(drain_notice=drain)


class SiteFraming:
    """Frames of the site plane."""

    domain = DOMAIN

    def frame(
        self, seq: int, ack_seq: int, items: list[SiteServerItem]
    ) -> site_plane_pb2.SitePlaneServiceSessionResponse:
        """A frame from the relay."""
        return site_plane_pb2.SitePlaneServiceSessionResponse(seq=seq, ack_seq=ack_seq, items=items)

    def challenge(self, challenge: session_pb2.Challenge) -> SiteServerItem:
        """See the session protocol."""
        return SiteServerItem(challenge=challenge)

    def welcome(self, welcome: session_pb2.Welcome) -> SiteServerItem:
        """See the session protocol."""
        return SiteServerItem(welcome=welcome)

    def heartbeat(self, heartbeat: session_pb2.Heartbeat) -> SiteServerItem:
        """See the session protocol."""
        return SiteServerItem(heartbeat=heartbeat)

    def frame_error(self, error: session_pb2.FrameError) -> SiteServerItem:
        """See the session protocol."""
        return SiteServerItem(frame_error=error)

    def resync_required(self, resync: session_pb2.ResyncRequired) -> SiteServerItem:
        """See the session protocol."""
        return SiteServerItem(resync_required=resync)

    def drain_notice(self, drain: session_pb2.DrainNotice) -> SiteServerItem:
        """See the session protocol."""
        return SiteServerItem(drain_notice=drain)
