"""The stream of one worker: hints of work, verdicts on leases, and small calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc.aio

from durable_service.caller import for_caller
from durable_service.core.definition import Driver
from durable_service.core.errors import DomainError
from durable_service.core.leases import release
from durable_service.core.model import Ending, Holder, TaskRecord
from durable_service.core.verdicts import LeaseState
from durable_service.lease_news import LeasePush, Wake, WakePush
from durable_service.planes.admission_desk import AdmissionDesk
from durable_service.planes.claim_calls import require_drivers
from durable_service.planes.convert import driver_message, drivers_of, duration_of, verdict_message
from durable_service.planes.gate import Gate, errors_told
from durable_service.planes.lease_calls import LeaseCalls
from durable_service.planes.refusals import body_too_large
from durable_service.planes.validation import Checks
from durable_service.sessions.framing import WorkerFraming, WorkerItem, WorkerServerItem
from durable_service.sessions.worker_calls import StreamCalls, tasks_of
from durable_service.store.base import ClaimableQuery, TaskStore
from durable_service.work_offers import WorkOffers, work_by_driver
from sealwork.durable.v1 import lease_pb2, worker_push_pb2, worker_service_pb2
from sealwork.session.v1 import session_pb2
from service_common.background import Background
from service_common.errors import ServiceError
from service_common.sessions.concurrent_calls import ConcurrentCalls
from service_common.sessions.credit import CreditLimit
from service_common.sessions.endings import EndReason, protocol_violation
from service_common.sessions.session import ServerSession, SessionSetting

WAKES = {
    Wake.APPROVAL_DECIDED: worker_push_pb2.WAKE_REASON_APPROVAL_DECIDED,
    Wake.APPROVAL_EXPIRED: worker_push_pb2.WAKE_REASON_APPROVAL_EXPIRED,
    Wake.TIMER: worker_push_pb2.WAKE_REASON_TIMER,
    Wake.RECONCILED: worker_push_pb2.WAKE_REASON_RECONCILED,
}
# Far more than one worker executes, in parts of 500: what goes on beyond is no inventory.
_INVENTORY_LEASES = 10_000
_VERDICT_OVERHEAD_BYTES = 4
# Tasks that a look at the store counts for hints.
_LOOKED_AT = 50
# A hint may be lost, and so may the news that a hint is made of.
_LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """What the stream of a worker works with.

    Attributes:
        background: runs what must outlive the call that carried the stream.
    """

    store: TaskStore
    gate: Gate
    leases: LeaseCalls
    calls: StreamCalls
    offers: WorkOffers
    background: Background
    admission: AdmissionDesk


class WorkerSession(ServerSession[WorkerItem, WorkerServerItem]):
    """What a connected worker has: drivers, credit, and the cancels that it knows of.

    Args:
        begun_ms: by the store's clock, before the worker drew up its inventory.
    """

    def __init__(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        hello: worker_service_pb2.WorkerHello,
        session_id: str,
        services: WorkerServices,
        setting: SessionSetting,
        begun_ms: int,
    ) -> None:
        super().__init__(context, WorkerFraming(), session_id, setting)
        self.principal_id = hello.principal_id
        self.worker_id = hello.worker_id
        caller = services.gate.caller("Session", self.principal_id)
        self.tenant_id = caller.tenant_id
        self.holder_name = caller.holder_name(self.worker_id)
        self.drivers: frozenset[Driver] = drivers_of(hello.drivers)
        require_drivers(caller, self.drivers)
        self.credit = CreditLimit(hello.credit.limit)
        self._services = services
        self._store = services.store
        self._begun_ms = begun_ms
        self._under_way = ConcurrentCalls(self.times.concurrent_calls)
        self._inventory: dict[tuple[str, int], lease_pb2.LeaseRef] = {}
        self._known_cancels: set[tuple[str, int]] = set()
        self._leaving = False

    # -- arrival ------------------------------------------------------------------------

    async def arrive(self, hello: worker_service_pb2.WorkerHello, welcome: session_pb2.Welcome) -> None:
        """Welcomes the worker, answers its inventory and tells it of work that waits."""
        self.send_control(WorkerServerItem(welcome=welcome))
        await self._take_inventory(hello.inventory)
        self._services.offers.enter(self)
        self._look()

    # -- hints --------------------------------------------------------------------------

    @property
    def willing(self) -> bool:
        """Whether a hint is welcome."""
        return not (self.ended or self.draining or self._leaving) and self.credit.free > 0

    def offer(self, driver: Driver, count: int) -> bool:
        """Hints at work; False when no hint is welcome now."""
        if not self.willing or self.outbound.notice_room <= 0:
            return False
        hint = worker_push_pb2.TasksAvailable(driver=driver_message(driver), count=count)
        sent = self.send_notice(WorkerServerItem(tasks_available=hint))
        self.credit.sent += sent
        return sent

    def notices_wanted(self) -> None:
        """The lane has room again, so hints are welcome again."""
        self._services.background.run(self._offer_what_waits())

    def _look(self) -> None:
        self._timers.pop("look", None)
        if self.ended:
            return
        self._start_timer("look", _LOOK_SECONDS, self._look)
        if self.willing:
            self._services.background.run(self._offer_what_waits())

    async def _offer_what_waits(self) -> None:
        if not self.willing or not self.drivers:
            return
        query = ClaimableQuery(self.tenant_id, self.drivers, limit=_LOOKED_AT)
        for driver, count in work_by_driver(await self._store.claimable(query)).items():
            self.offer(driver, count)

    # -- what the worker says -----------------------------------------------------------

    def arm_of(self, item: WorkerItem) -> str | None:
        """The arm that is set."""
        return item.WhichOneof("item")

    async def receive(self, item: WorkerItem) -> None:
        """Handles one item."""
        arm = item.WhichOneof("item")
        if arm == "call":
            # Its errors are replies.
            await self._under_way.start(tasks_of(item.call), partial(self._answer, item.call))
            return
        await self._under_way.begun()
        with errors_told():
            await getattr(self, f"_receive_{arm}")(item)

    async def _receive_heartbeat(self, item: WorkerItem) -> None:
        if item.heartbeat.ping_id:
            echo = session_pb2.Heartbeat(pong_id=item.heartbeat.ping_id)
            self.send_control(WorkerServerItem(heartbeat=echo))

    async def _receive_credit(self, item: WorkerItem) -> None:
        was_willing = self.willing
        self.credit.raise_to(item.credit.limit)
        # One that had credit has been told of everything.
        if self.willing and not was_willing:
            await self._offer_what_waits()

    async def _receive_renew(self, item: WorkerItem) -> None:
        renew = item.renew
        await self._under_way.settled(frozenset(lease.task_id for lease in renew.leases))
        caller = self._services.gate.caller("RenewLeases", self.principal_id)
        self._name_worker(renew.leases)
        verdicts = await self._services.leases.renew(caller, renew.leases)
        answer = worker_push_pb2.TaskVerdicts(
            renewal_id=renew.renewal_id, renewed_for=duration_of(self.times.lease_ms)
        )
        for lease, verdict in zip(renew.leases, verdicts, strict=True):
            known = (lease.task_id, lease.fence) in self._known_cancels
            if verdict.state is LeaseState.ACTIVE or (verdict.state is LeaseState.CANCEL_REQUESTED and known):
                continue
            answer.verdicts.append(verdict_message(lease, verdict))
        # In one piece: what an answer does not name counts as renewed.
        if answer.ByteSize() > self.times.reply_bytes:
            raise body_too_large(self.times.reply_bytes)
        self.send_control(WorkerServerItem(verdicts=answer))

    async def _receive_drivers_changed(self, item: WorkerItem) -> None:
        checks = Checks()
        checks.drivers("drivers", item.drivers_changed.drivers, 0)
        checks.raise_faults()
        drivers = drivers_of(item.drivers_changed.drivers)
        require_drivers(self._services.gate.caller("Session", self.principal_id), drivers)
        self._services.offers.leave(self)
        self.drivers = drivers
        if not self._leaving:
            self._services.offers.enter(self)
            await self._offer_what_waits()

    async def _receive_cancel_ack(self, item: WorkerItem) -> None:
        checks = Checks()
        self._name_worker(item.cancel_ack.leases)
        checks.leases("leases", item.cancel_ack.leases)
        checks.raise_faults()
        if len(self._known_cancels) > _INVENTORY_LEASES:
            # Tasks of long ago; what is still held is announced once more.
            self._known_cancels.clear()
        self._known_cancels.update((lease.task_id, lease.fence) for lease in item.cancel_ack.leases)

    async def _receive_inventory(self, item: WorkerItem) -> None:
        # What a call before it has finished or given back is not named any more.
        await self.settle()
        self._begun_ms = await self._store.now_ms() if not self._inventory else self._begun_ms
        await self._take_inventory(item.inventory)

    async def _receive_draining(self, item: WorkerItem) -> None:  # noqa: ARG002 - it has no fields
        self._leaving = True
        self._services.offers.leave(self)

    async def _receive_goodbye(self, item: WorkerItem) -> None:  # noqa: ARG002 - its text is for the client's logs
        await self.settle()
        self.end(EndReason.GOODBYE)

    async def _receive_hello(self, item: WorkerItem) -> None:  # noqa: ARG002 - refused unread
        self.end(EndReason.REFUSED, protocol_violation("a second hello on one stream"))

    async def _answer(self, call: worker_service_pb2.WorkerCall) -> None:
        item = WorkerServerItem()
        await self._services.calls.answer(
            self.principal_id, self.worker_id, call, self.times.inline_body_bytes, item.reply
        )
        self.send_control(item)

    async def settle(self) -> None:
        """Returns when every call has been answered."""
        await self._under_way.settled()

    # -- the inventory ------------------------------------------------------------------

    async def _take_inventory(self, inventory: worker_service_pb2.LeaseInventory) -> None:
        self._name_worker(inventory.leases)
        checks = Checks()
        checks.leases("inventory.leases", inventory.leases, least=0)
        checks.raise_faults()
        self._inventory.update({(lease.task_id, lease.fence): lease for lease in inventory.leases})
        if len(self._inventory) > _INVENTORY_LEASES:
            self.end(EndReason.REFUSED, protocol_violation("an inventory without end"))
            return
        if inventory.more:
            return
        named, self._inventory = self._inventory, {}
        await self._reconcile(named)

    async def _reconcile(self, named: dict[tuple[str, int], lease_pb2.LeaseRef]) -> None:
        """Gives a verdict on every lease that the worker names, and takes back all others that it holds."""
        caller = self._services.gate.caller("RenewLeases", self.principal_id)
        leases = list(named.values())
        verdicts = await self._services.leases.verdicts(caller, leases, renewing=True)
        for record in await self._store.held(self.tenant_id, self.holder_name):
            if record.lease is not None and (record.key.task_id, record.lease.fence) not in named:
                await self._take_back(record, Holder(self.holder_name, record.lease.fence))
        self.push_verdicts(
            verdict_message(lease, verdict) for lease, verdict in zip(leases, verdicts, strict=True)
        )

    async def _take_back(self, record: TaskRecord, holder: Holder) -> None:
        # A claim that was answered while the inventory was drawn up is not in it and not lost either.
        if _granted_since(record, self._begun_ms):
            return
        caller = self._services.gate.caller("ReleaseTask", self.principal_id)
        try:
            await self._store.update(
                record.key,
                for_caller(caller, lambda record, now_ms: release(record, holder, now_ms, Ending.TAKEN_BACK)),
            )
        except DomainError:
            # It has run out or ended since: there is nothing left to take back.
            return

    def _name_worker(self, leases: Iterable[lease_pb2.LeaseRef]) -> None:
        """Fills in the worker of the hello where a lease names none."""
        for lease in leases:
            lease.worker_id = lease.worker_id or self.worker_id

    # -- what the service says ----------------------------------------------------------

    def push_lease(self, task_id: str, push: LeasePush) -> None:
        """Tells of a cancel or of a lost lease, ahead of everything that waits."""
        lease = lease_pb2.LeaseRef(task_id=task_id, worker_id=self.worker_id, fence=push.holder.fence)
        if push.verdict.state is not LeaseState.CANCEL_REQUESTED:
            self._known_cancels.discard((task_id, push.holder.fence))
        self.push_verdicts([verdict_message(lease, push.verdict)])

    def push_wake(self, record: TaskRecord, push: WakePush) -> None:
        """Tells that a task which waited can go on."""
        woken = worker_push_pb2.TaskWoken(
            task_id=record.key.task_id,
            driver=driver_message(record.definition.driver),
            reason=WAKES[push.wake],
            event_sequence=push.sequence,
        )
        self.send_notice(WorkerServerItem(task_woken=woken))

    def push_verdicts(self, verdicts: Iterable[lease_pb2.LeaseVerdict]) -> None:
        """Pushes verdicts that answer no renewal, an empty list included."""
        part, size = worker_push_pb2.TaskVerdicts(), 0
        for verdict in verdicts:
            size += verdict.ByteSize() + _VERDICT_OVERHEAD_BYTES
            if size > self.times.reply_bytes and part.verdicts:
                self.send_control(WorkerServerItem(verdicts=part))
                part, size = worker_push_pb2.TaskVerdicts(), verdict.ByteSize()
            part.verdicts.append(verdict)
        self.send_control(WorkerServerItem(verdicts=part))

    # -- the end ------------------------------------------------------------------------

    def end(self, reason: EndReason, error: ServiceError | None = None) -> None:
        """Ends the stream, and with it the hints."""
        super().end(reason, error)
        self._services.offers.leave(self)

    def depart(self) -> None:
        """After the end: nothing is looked for any more. Leases stay."""
        self._services.offers.leave(self)


def check_hello(hello: worker_service_pb2.WorkerHello) -> None:
    """Raises FIELD_INVALID with every fault of a hello, its inventory aside."""
    checks = Checks()
    checks.label("worker_id", hello.worker_id)
    checks.label("process_id", hello.process_id)
    for field in ("client_name", "client_version"):
        if getattr(hello, field):
            checks.label(field, getattr(hello, field))
    checks.drivers("drivers", hello.drivers, 0)
    checks.raise_faults()


def _granted_since(record: TaskRecord, at_ms: int) -> bool:
    newest = record.attempts[-1] if record.attempts else None
    if newest is not None and newest.fence == record.fence:
        return newest.started_at_ms >= at_ms
    # A lease to recover leaves no attempt; the last change of the task stands in for the grant.
    return record.updated_at_ms >= at_ms
