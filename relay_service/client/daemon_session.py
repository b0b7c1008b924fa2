"""A device's half of its stream: the hello with all it holds, the credit, and what the relay says."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from relay_service.client.daemon_desk import JobDesk
from relay_service.client.daemon_renewals import Renewals, parts_of
from relay_service.client.errors import RelayError
from relay_service.client.software import CLIENT_NAME, PROTOCOL_VERSION, client_version
from relay_service.client.wire import AUDIENCES, capability_to_proto
from relay_service.core.model import Capability, WithheldKind
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from sealwork.session.v1 import session_pb2
from service_common.clocks import Clock
from service_common.errors import ServiceError
from service_common.session_client import ClientStream, Hello, SessionPlane, StreamEnd

logger = logging.getLogger("sealwork.client")

DAEMON_SESSION: Final = SessionPlane(
    method="/sealwork.relay.v1.DaemonPlaneService/Session",
    item=daemon_plane_pb2.DaemonItem,
    call=daemon_plane_pb2.DaemonCall,
    read_frame=daemon_plane_pb2.DaemonPlaneServiceSessionResponse.FromString,
    error_of=RelayError,
)

_LEASES_PER_FRAME: Final = 500


class DaemonSession:
    """Tells the desk what the stream brings, and the relay how many grants are welcome."""

    def __init__(
        self,
        runner_id: str,
        process_id: str,
        matrix: Sequence[Capability],
        withheld: Sequence[WithheldKind],
        *,
        free_slots: Callable[[], int],
        clock: Clock,
        on_welcome: Callable[[session_pb2.Welcome], None],
        on_refused: Callable[[RelayError], None],
    ) -> None:
        """Prepare; `serve` says whom to tell.

        Args:
            runner_id: The device.
            process_id: Minted at process start; two processes of one device differ here.
            matrix: What the device offers.
            withheld: Kinds that it holds back.
            free_slots: Returns how many more jobs it would take.
            clock: Its monotonic half counts leases.
            on_welcome: Told of what the relay says first on every stream.
            on_refused: There will be no stream any more.
        """
        self._runner_id = runner_id
        self._process_id = process_id
        self._matrix = matrix
        self._withheld = withheld
        self._free_slots = free_slots
        self._clock = clock
        self._on_welcome = on_welcome
        self._on_refused = on_refused
        self._desk: JobDesk | None = None
        self._renewals: Renewals | None = None
        self._stream: ClientStream | None = None
        self._grants = 0
        self._asked_at = clock.monotonic()
        self._named: frozenset[str] = frozenset()
        self._rest_of_inventory: list[Sequence[job_pb2.LeaseRef]] = []
        self._acknowledged: list[job_pb2.LeaseRef] = []

    def serve(self, desk: JobDesk, renewals: Renewals) -> None:
        """Tell these from now on."""
        self._desk = desk
        self._renewals = renewals

    # -- what the device says -----------------------------------------------------------

    def hello(self) -> Hello:
        leases = self._leases()
        self._asked_at = self._clock.monotonic()
        self._named = frozenset(lease.lease_id for lease in leases)
        first, *self._rest_of_inventory = [*parts_of(leases, _LEASES_PER_FRAME)] or [[]]
        credit = self._free_slots()
        hello = daemon_plane_pb2.DaemonHello(
            runner_id=self._runner_id,
            process_id=self._process_id,
            client_name=CLIENT_NAME,
            client_version=client_version(),
            protocol_version=PROTOCOL_VERSION,
            capabilities=[session_pb2.CAPABILITY_INLINE_PAYLOAD],
            matrix=map(capability_to_proto, self._matrix),
            withheld=map(_withheld_to_proto, self._withheld),
            inventory=daemon_plane_pb2.Inventory(leases=first, more=bool(self._rest_of_inventory)),
            credit=session_pb2.Credit(limit=credit),
        )
        return Hello(hello.SerializeToString(), credit)

    def offer(self) -> None:
        """Let the relay grant as many jobs as there are free slots."""
        if self._stream is not None:
            self._stream.offer_credit(self._grants + self._free_slots())

    def change(self, matrix: Sequence[Capability], withheld: Sequence[WithheldKind]) -> None:
        """Offer something else from now on."""
        self._matrix, self._withheld = matrix, withheld
        if self._stream is not None:
            changed = daemon_plane_pb2.CapabilitiesChanged(
                matrix=map(capability_to_proto, matrix), withheld=map(_withheld_to_proto, withheld)
            )
            self._stream.send(daemon_plane_pb2.DaemonItem(capabilities_changed=changed), control=True)

    def drain(self) -> None:
        """Ask for no more grants on this stream."""
        if self._stream is not None:
            draining = daemon_plane_pb2.DaemonItem(draining=daemon_plane_pb2.Draining())
            self._stream.send(draining, control=True)

    # -- what the relay says ------------------------------------------------------------

    def opened(self, stream: ClientStream) -> None:
        self._on_welcome(stream.welcome)
        self._stream = stream
        self._grants = 0
        self._send_inventory(stream, self._rest_of_inventory)
        self._rest_of_inventory = []
        if self._renewals is not None:
            self._renewals.start(stream.limits.renew_seconds)
            # What was granted between the hello and this moment is not in the inventory, so the relay may
            # have taken it back: ask.
            self._renewals.ask([lease for lease in self._leases() if lease.lease_id not in self._named])
        self.offer()

    def received(self, stream: ClientStream, arm: str, item: Any) -> None:
        if stream is not self._stream or self._desk is None or self._renewals is None:
            # A stream that has been replaced: the relay has settled with its successor what is held.
            return
        match arm:
            case "granted":
                self._grants += 1
                lease = self._desk.granted(item.granted)
                if lease is not None:
                    self._acknowledged.append(lease)
            case "payload_ready":
                self._desk.payload_ready(item.payload_ready)
            case "verdicts" if item.verdicts.renewal_id:
                self._renewals.answered(item.verdicts)
            case "verdicts":
                for verdict in item.verdicts.verdicts:
                    self.heed(verdict, self._asked_at)
            case "sites_changed":
                self._desk.sites_changed(item.sites_changed.directory)
            case "resync_required":
                self._asked_at = self._clock.monotonic()
                parts = [*parts_of(self._leases(), stream.limits.leases_per_frame)]
                self._send_inventory(stream, parts or [[]])
            case _:
                pass

    def heed(self, verdict: job_pb2.LeaseVerdict, asked_at: float) -> None:
        """Heed a verdict, and acknowledge it when it is a cancel."""
        if self._desk is not None:
            canceled = self._desk.verdict(verdict, asked_at)
            if canceled is not None and self._stream is not None:
                ack = daemon_plane_pb2.CancelAck(leases=[canceled])
                self._stream.send(daemon_plane_pb2.DaemonItem(cancel_ack=ack), control=True)

    def frame_handled(self, stream: ClientStream) -> None:
        if self._acknowledged:
            acknowledged, self._acknowledged = self._acknowledged, []
            for part in parts_of(acknowledged, stream.limits.leases_per_frame):
                ack = daemon_plane_pb2.GrantAck(leases=part)
                stream.send(daemon_plane_pb2.DaemonItem(grant_ack=ack), control=True)
        if stream is self._stream:
            # A grant that was refused has used up credit and no slot.
            self.offer()

    def lost(self, end: StreamEnd) -> None:
        del end
        self._stream = None

    def refused(self, error: ServiceError) -> None:
        self._stream = None
        self._on_refused(RelayError(error))

    def _leases(self) -> Sequence[job_pb2.LeaseRef]:
        return () if self._desk is None else self._desk.leases()

    def _send_inventory(self, stream: ClientStream, parts: Sequence[Sequence[job_pb2.LeaseRef]]) -> None:
        for position, part in enumerate(parts):
            inventory = daemon_plane_pb2.Inventory(leases=part, more=position + 1 < len(parts))
            stream.send(daemon_plane_pb2.DaemonItem(inventory=inventory), control=True)


def _withheld_to_proto(kind: WithheldKind) -> job_pb2.WithheldKind:
    claimants = [
        job_pb2.WithheldClaimant(service=service, offer_scope=AUDIENCES[scope])
        for service, scope in kind.claimants
    ]
    return job_pb2.WithheldKind(kind=kind.kind, claimants=claimants)
