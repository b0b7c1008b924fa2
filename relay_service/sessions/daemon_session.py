"""The stream of one device: its credit is a standing claim."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc.aio

from relay_service.core.limits import LEASES_PER_DEVICE
from relay_service.core.model import (
    GrantedJob,
    LeaseChanged,
    LeaseEnd,
    LeaseRef,
    Presence,
    ReleaseReason,
    SealedEnvelope,
    Verdict,
    VerdictState,
)
from relay_service.core.projection import ProjectedDevice
from relay_service.planes import convert
from relay_service.planes.daemon_calls import DaemonCalls
from relay_service.planes.refusals import body_too_large
from relay_service.planes.validation import Checks
from relay_service.sessions.daemon_replies import answer, jobs_of
from relay_service.sessions.epoch_fence import EpochFence
from relay_service.sessions.framing import DaemonFraming, DaemonItem, DaemonServerItem
from relay_service.sessions.unacknowledged import UnacknowledgedGrants
from relay_service.sessions.work_seeker import WorkSeeker
from relay_service.store.base import RoutingStore
from sealwork.relay.v1 import daemon_plane_pb2, site_directory_pb2
from sealwork.session.v1 import session_pb2
from service_common.background import Background
from service_common.errors import ServiceError
from service_common.sessions.concurrent_calls import ConcurrentCalls
from service_common.sessions.credit import CreditLimit
from service_common.sessions.endings import EndReason, protocol_violation
from service_common.sessions.registry import superseded
from service_common.sessions.session import ServerSession, SessionSetting

# Far more than a device may hold, in parts of 500: what goes on beyond is no inventory.
_INVENTORY_LEASES = 10_000
_VERDICT_OVERHEAD_BYTES = 4


@dataclass(frozen=True, slots=True)
class DaemonServices:
    """What the stream of a device works with.

    Attributes:
        wants_work: told whenever a session may have become able to take a grant.
        background: runs what must outlive the call that carried the stream.
    """

    store: RoutingStore
    calls: DaemonCalls
    wants_work: WorkSeeker["DaemonSession"]
    background: Background


class DaemonSession(ServerSession[DaemonItem, DaemonServerItem]):
    """What a connected device has: kinds, credit, grants on their way, timers."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        device: ProjectedDevice,
        hello: daemon_plane_pb2.DaemonHello,
        capabilities: frozenset[session_pb2.Capability.ValueType],
        session_id: str,
        services: DaemonServices,
        setting: SessionSetting,
    ) -> None:
        super().__init__(context, DaemonFraming(), session_id, setting)
        self.device = device
        self.client_version = hello.client_version
        self.kinds = frozenset(row.kind for row in hello.matrix)
        self.matrix = convert.matrix_from_proto(hello.matrix)
        self.inline_payload = session_pb2.CAPABILITY_INLINE_PAYLOAD in capabilities
        self.credit = CreditLimit(hello.credit.limit)
        self._withheld = tuple(convert.withheld_from_proto(kind) for kind in hello.withheld)
        self._store = services.store
        self._calls = services.calls
        self._wants_work = services.wants_work
        self._background = services.background
        self._under_way = ConcurrentCalls(self.times.concurrent_calls)
        self._unacknowledged = UnacknowledgedGrants()
        self._inventory: dict[LeaseRef, None] = {}
        self._leaving = False
        # It let a grant pass by: frozen or cut off, it would be given the same job again and again.
        self._unresponsive = False
        self.fence = EpochFence(lambda: self.end(EndReason.SUPERSEDED, superseded()))

    # -- what dispatch asks -------------------------------------------------------------

    @property
    def request_id(self) -> str | None:
        """None: a stream's claims are not repeated."""
        return None

    @property
    def runner_id(self) -> str:
        """The device, as the projection names it."""
        return self.device.runner_id

    @property
    def owner(self) -> str:
        """Whose device it is."""
        return self.device.owner

    @property
    def free(self) -> int:
        """How many grants it would take now."""
        unwilling = self.ended or self.draining or self._leaving or self._unresponsive
        if unwilling or self.credit.free <= 0:
            return 0
        # A grant that does not fit the lane would go back, be offered here again, and so on.
        return min(self.credit.free, LEASES_PER_DEVICE, self.outbound.notice_room)

    def notices_wanted(self) -> None:
        """The lane has room again, so grants are welcome again."""
        self._wants_work.seek(self)

    # -- arrival ------------------------------------------------------------------------

    async def arrive(self, hello: daemon_plane_pb2.DaemonHello, welcome: session_pb2.Welcome) -> None:
        """Welcomes the device, answers its inventory and starts to look for work."""
        self.send_control(DaemonServerItem(welcome=welcome))
        await self._announce()
        await self._take_inventory(hello.inventory)

    async def _announce(self) -> None:
        await self._store.seen(
            Presence(self.runner_id, self.owner, self.device.identity, self.matrix, self._withheld)
        )

    # -- what the device says -----------------------------------------------------------

    def arm_of(self, item: DaemonItem) -> str | None:
        """The arm that is set."""
        return item.WhichOneof("item")

    async def receive(self, item: DaemonItem) -> None:
        """Handles one item."""
        if self._unresponsive:
            self._unresponsive = False
            self._wants_work.seek(self)
        arm = item.WhichOneof("item")
        if arm != "call":
            await self._under_way.begun()
        # One method an arm, named after it: a table of bound methods would cost each stream a KiB.
        await getattr(self, f"_receive_{arm}")(item)

    async def _receive_heartbeat(self, item: DaemonItem) -> None:
        if item.heartbeat.ping_id:
            echo = session_pb2.Heartbeat(pong_id=item.heartbeat.ping_id)
            self.send_control(DaemonServerItem(heartbeat=echo))

    async def _receive_credit(self, item: DaemonItem) -> None:
        self.credit.raise_to(item.credit.limit)
        self._wants_work.seek(self)

    async def _receive_grant_ack(self, item: DaemonItem) -> None:
        checks = Checks()
        checks.leases("leases", item.grant_ack.leases)
        checks.raise_faults()
        self._unacknowledged.acknowledge(lease.lease_id for lease in item.grant_ack.leases)

    async def _receive_inventory(self, item: DaemonItem) -> None:
        # What a call before it has finished or given back is not named any more.
        await self.settle()
        await self._take_inventory(item.inventory)

    async def _receive_draining(self, item: DaemonItem) -> None:  # noqa: ARG002 - it has no fields
        self._leaving = True
        self._wants_work.forget(self)

    async def _receive_goodbye(self, item: DaemonItem) -> None:  # noqa: ARG002 - its text is for the client's logs
        await self.settle()
        self.end(EndReason.GOODBYE)

    async def _receive_hello(self, item: DaemonItem) -> None:  # noqa: ARG002 - refused unread
        self.end(EndReason.REFUSED, protocol_violation("a second hello on one stream"))

    async def _receive_renew(self, item: DaemonItem) -> None:
        renew = item.renew
        await self._under_way.settled(frozenset(lease.job_id for lease in renew.leases))
        verdicts = await self._calls.renew(self.runner_id, renew.leases)
        exceptions = [verdict for verdict in verdicts if verdict.state is not VerdictState.ACTIVE]
        answer_ = daemon_plane_pb2.Verdicts(
            renewal_id=renew.renewal_id,
            renewed_for=convert.duration_of(self.times.lease_ms),
            verdicts=map(convert.verdict_to_proto, exceptions),
        )
        # In one piece: what an answer does not name counts as renewed.
        if answer_.ByteSize() > self.times.reply_bytes:
            raise body_too_large(self.times.reply_bytes)
        self.send_control(DaemonServerItem(verdicts=answer_))

    async def _receive_call(self, item: DaemonItem) -> None:
        await self._under_way.start(jobs_of(item.call), partial(self._answer, item.call))

    async def _answer(self, call: daemon_plane_pb2.DaemonCall) -> None:
        reply = await answer(self._calls, self.runner_id, call, self.times)
        self.send_control(DaemonServerItem(reply=reply))

    async def settle(self) -> None:
        """Returns when every call has been answered."""
        await self._under_way.settled()

    async def _receive_cancel_ack(self, item: DaemonItem) -> None:
        checks = Checks()
        checks.leases("leases", item.cancel_ack.leases)
        checks.raise_faults()
        leases = convert.lease_refs_from_proto(item.cancel_ack.leases)
        await self._store.acknowledge_cancels(self.runner_id, leases)

    async def _receive_capabilities_changed(self, item: DaemonItem) -> None:
        change = item.capabilities_changed
        checks = Checks()
        checks.matrix("matrix", change.matrix)
        checks.withheld("withheld", change.withheld)
        checks.raise_faults()
        self._wants_work.forget(self)
        self.matrix = convert.matrix_from_proto(change.matrix)
        self.kinds = frozenset(row.kind for row in change.matrix)
        self._withheld = tuple(convert.withheld_from_proto(kind) for kind in change.withheld)
        await self._announce()
        self._wants_work.seek(self)

    async def _take_inventory(self, inventory: daemon_plane_pb2.Inventory) -> None:
        checks = Checks()
        checks.count("inventory.leases", len(inventory.leases), 0, self.times.leases_per_frame)
        checks.lease_names("inventory.leases", inventory.leases)
        checks.raise_faults()
        self._inventory.update(dict.fromkeys(convert.lease_refs_from_proto(inventory.leases)))
        if len(self._inventory) > _INVENTORY_LEASES:
            self.end(EndReason.REFUSED, protocol_violation("an inventory without end"))
            return
        if inventory.more:
            return
        named, self._inventory = list(self._inventory), {}
        await self._reconcile(named)
        self._wants_work.seek(self)

    async def _reconcile(self, named: list[LeaseRef]) -> None:
        """Gives a verdict on every lease the device names, and takes back all others it holds.

        What it does not name it does not know of: its grant was lost with an earlier
        stream, or the process that held it is gone. Grants on their way on this stream are
        none of these: they were not there yet when it drew up the inventory.
        """
        verdicts = await self._store.renew_leases(self.runner_id, named, self.times.lease_ms)
        self._unacknowledged.acknowledge(lease.lease_id for lease in named)
        known = {lease.lease_id for lease in named}
        held = await self._store.held(self.runner_id)
        unknown = [
            LeaseRef(job.stub.id, job.lease_id)
            for job in held
            if job.lease_id not in known and job.lease_id not in self._unacknowledged
        ]
        if unknown:
            await self._store.release_leases(self.runner_id, unknown, ReleaseReason.UNACKNOWLEDGED)
        self.push_verdicts(verdicts)
        for job in held:
            if job.lease_id in known:
                await self.announce_payload(job)

    async def announce_payload(self, granted: GrantedJob) -> None:
        """Says that the payload of a held job is there, if it is."""
        job = await self._store.job(granted.site_id, granted.stub.id)
        if job is not None and job.payload is not None:
            self.push_payload_ready(LeaseRef(granted.stub.id, granted.lease_id), job.payload, inline=False)

    # -- what the relay says ------------------------------------------------------------

    async def grant(self, granted: Sequence[GrantedJob], now_ms: int) -> None:
        """Pushes grants; each is taken back unless acknowledged in time."""
        due = self.clock.monotonic() + self.times.grant_acknowledgement_ms / 1000
        unsent: list[LeaseRef] = []
        for job in granted:
            lease = LeaseRef(job.stub.id, job.lease_id)
            item = DaemonServerItem(granted=convert.granted_to_proto(job, now_ms))
            if self.ended or not self.send_notice(item):
                unsent.append(lease)
                continue
            self.credit.sent += 1
            self._unacknowledged.push(lease, due)
        if unsent:
            await self._store.release_leases(self.runner_id, unsent, ReleaseReason.UNACKNOWLEDGED)
        self._watch_unacknowledged()

    def push_payload_ready(self, lease: LeaseRef, payload: SealedEnvelope, *, inline: bool) -> None:
        """Says that the payload is there, with the payload itself when `inline`."""
        ready = daemon_plane_pb2.PayloadReady(
            lease=convert.lease_ref_to_proto(lease), size_bytes=len(payload.ciphertext)
        )
        if inline:
            ready.envelope.CopyFrom(convert.envelope_to_proto(payload))
        # Behind the grant in the same lane: it must not arrive before it.
        self.send_notice(DaemonServerItem(payload_ready=ready))

    def push_change(self, change: LeaseChanged) -> None:
        """Tells of a cancel or of a lost lease, ahead of everything that waits."""
        state = VerdictState.LOST if change.end is not None else VerdictState.CANCEL_REQUESTED
        if change.end is not None:
            self._unacknowledged.acknowledge([change.lease.lease_id])
        self.push_verdicts([Verdict(change.lease, state, end=change.end)])

    def push_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Pushes verdicts that answer no renewal, an empty list included."""
        part, size = daemon_plane_pb2.Verdicts(), 0
        for verdict in map(convert.verdict_to_proto, verdicts):
            size += verdict.ByteSize() + _VERDICT_OVERHEAD_BYTES
            if size > self.times.reply_bytes and part.verdicts:
                self.send_control(DaemonServerItem(verdicts=part))
                part, size = daemon_plane_pb2.Verdicts(), verdict.ByteSize()
            part.verdicts.append(verdict)
        self.send_control(DaemonServerItem(verdicts=part))

    def push_sites(self, directory: site_directory_pb2.SiteDirectory) -> None:
        """Says which sites the owner consents to now."""
        changed = daemon_plane_pb2.SitesChanged(directory=directory)
        self.send_control(DaemonServerItem(sites_changed=changed))

    # -- grants that nobody acknowledges ------------------------------------------------

    def _watch_unacknowledged(self) -> None:
        due = self._unacknowledged.next_due()
        if due is not None and "unacknowledged" not in self._timers and not self.ended:
            wait = max(0.0, due - self.clock.monotonic())
            self._start_timer("unacknowledged", wait, self._expire_unacknowledged)

    def _expire_unacknowledged(self) -> None:
        del self._timers["unacknowledged"]
        overdue = self._unacknowledged.take_overdue(self.clock.monotonic())
        if overdue:
            self._unresponsive = True
            self._background.run(self._take_back(overdue))
            self.push_verdicts(
                [Verdict(lease, VerdictState.LOST, end=LeaseEnd.RELEASED) for lease in overdue]
            )
        self._watch_unacknowledged()

    async def _take_back(self, leases: list[LeaseRef]) -> None:
        await self._store.release_leases(self.runner_id, leases, ReleaseReason.UNACKNOWLEDGED)

    def end(self, reason: EndReason, error: ServiceError | None = None) -> None:
        """Ends the stream; a successor answers for grants that were still on their way."""
        super().end(reason, error)
        self._wants_work.forget(self)
        if reason is EndReason.SUPERSEDED:
            # The successor's inventory decides; taking back here could hit a lease it has kept.
            self._unacknowledged.take_all()

    def depart(self) -> None:
        """After the end: what was granted and never acknowledged goes back to the queue."""
        self._wants_work.forget(self)
        leases = self._unacknowledged.take_all()
        if leases:
            # In the background: the call that carried this stream may be cancelled at any await.
            self._background.run(self._take_back(leases))


def check_hello(hello: daemon_plane_pb2.DaemonHello, leases_per_frame: int) -> None:
    """Raises FIELD_INVALID with every fault of a hello."""
    checks = Checks()
    checks.identifier("process_id", hello.process_id)
    checks.label("client_version", hello.client_version)
    checks.label("client_name", hello.client_name)
    checks.matrix("matrix", hello.matrix)
    checks.withheld("withheld", hello.withheld)
    checks.count("inventory.leases", len(hello.inventory.leases), 0, leases_per_frame)
    checks.lease_names("inventory.leases", hello.inventory.leases)
    checks.raise_faults()
