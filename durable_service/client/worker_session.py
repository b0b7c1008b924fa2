"""A worker's half of its stream: the hello with all it holds, the credit, and what the service says."""

import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from durable_service.client.errors import DurableError
from durable_service.client.held_task import HeldTask
from durable_service.client.methods import WORKER_SESSION
from durable_service.client.renewals import Renewals, parts_of
from durable_service.client.software import CLIENT_NAME, PROTOCOL_VERSION, client_version
from durable_service.core.definition import Driver
from sealwork.durable.v1 import lease_pb2, task_pb2, worker_service_pb2
from sealwork.session.v1 import session_pb2
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.errors import ServiceError
from service_common.session_client import ClientStream, Hello, SessionPlane, StreamEnd

logger = logging.getLogger("sealwork.client")

WORKER_PLANE: Final = SessionPlane(
    method=WORKER_SESSION,
    item=worker_service_pb2.WorkerItem,
    call=worker_service_pb2.WorkerCall,
    read_frame=worker_service_pb2.WorkerServiceSessionResponse.FromString,
    error_of=DurableError,
)
FINAL_REASONS: Final = frozenset(
    {
        "BAD_SIGNATURE",
        "PRINCIPAL_REVOKED",
        "PROTOCOL_VIOLATION",
        "ROLE_NOT_ALLOWED",
        "UNSUPPORTED_PROTOCOL_VERSION",
        "WORKER_ID_CONFLICT",
    }
)
"""Refusals that another try cannot change."""

_LEASES_PER_FRAME: Final = 500
_HINTS: Final = 32
# The service waits for a hello three times as long.
_SETTLE_SECONDS: Final = 3.0


class WorkerSession:
    """Tells the leases what the stream says of them, and the claimer when there is work."""

    def __init__(  # noqa: PLR0913 - parts, all of them named
        self,
        principal_id: str,
        worker_id: str,
        process_id: str,
        drivers: Sequence[Driver],
        *,
        held: Callable[[], Sequence[HeldTask]],
        settle_claims: Callable[[], Coroutine[Any, Any, None]],
        on_work: Callable[[], None],
        on_refused: Callable[[DurableError], None],
        clock: Clock,
    ) -> None:
        """Prepare; `serve` says who renews.

        Args:
            principal_id: Whose credential it is.
            worker_id: The worker.
            process_id: Minted at process start; two processes of one worker differ here.
            drivers: What it can execute.
            held: Returns every lease that is held.
            settle_claims: Asks again whatever claim was not answered: a lease of it that the hello does not
                name would be taken back.
            on_work: There may be something to claim.
            on_refused: There will be no stream any more.
            clock: Its monotonic half counts leases.
        """
        self._principal_id = principal_id
        self._worker_id = worker_id
        self._process_id = process_id
        self._drivers = drivers
        self._held = held
        self._settle_claims = settle_claims
        self._on_work = on_work
        self._on_refused = on_refused
        self._clock = clock
        self._renewals: Renewals | None = None
        self._stream: ClientStream | None = None
        self._asked_at = clock.monotonic()
        self._named: frozenset[tuple[str, int]] = frozenset()
        self._rest_of_inventory: list[Sequence[HeldTask]] = []
        self._hints = 0

    def serve(self, renewals: Renewals) -> None:
        """Tell these of answers to renewals."""
        self._renewals = renewals

    # -- what the worker says -----------------------------------------------------------

    async def hello(self) -> Hello:
        with contextlib.suppress(TimeoutError):
            await within(self._clock, _SETTLE_SECONDS, self._settle_claims())
        held = self._held()
        self._asked_at = self._clock.monotonic()
        self._named = frozenset(each.key for each in held)
        first, *self._rest_of_inventory = [*parts_of(held, _LEASES_PER_FRAME)] or [()]
        hello = worker_service_pb2.WorkerHello(
            principal_id=self._principal_id,
            worker_id=self._worker_id,
            process_id=self._process_id,
            client_name=CLIENT_NAME,
            client_version=client_version(),
            protocol_version=PROTOCOL_VERSION,
            drivers=[task_pb2.DriverRef(id=each.id, version=each.version) for each in self._drivers],
            inventory=_inventory(first, more=bool(self._rest_of_inventory)),
            credit=session_pb2.Credit(limit=_HINTS),
        )
        return Hello(hello.SerializeToString(), _HINTS)

    def drain(self) -> None:
        """Ask for no more hints on this stream."""
        if self._stream is not None:
            draining = worker_service_pb2.WorkerItem(draining=worker_service_pb2.WorkerDraining())
            self._stream.send(draining, control=True)

    # -- what the service says ----------------------------------------------------------

    def opened(self, stream: ClientStream) -> None:
        self._stream = stream
        self._hints = 0
        self._send_inventory(stream, self._rest_of_inventory)
        self._rest_of_inventory = []
        if self._renewals is not None:
            self._renewals.start()
            # What was claimed between the hello and this moment is not in the inventory, so the service may
            # have taken it back: ask.
            self._renewals.ask([each for each in self._held() if each.key not in self._named])
        # Hints were lost with the last stream.
        self._on_work()

    def received(self, stream: ClientStream, arm: str, item: Any) -> None:
        if stream is not self._stream:
            # A stream that has been replaced: its successor has settled what is held.
            return
        match arm:
            case "tasks_available":
                self._hints += 1
                self._on_work()
            case "task_woken":
                self._on_work()
            case "verdicts" if item.verdicts.renewal_id:
                if self._renewals is not None:
                    self._renewals.answered(item.verdicts)
            case "verdicts":
                self._heed(item.verdicts.verdicts)
            case "resync_required":
                self._asked_at = self._clock.monotonic()
                self._send_inventory(
                    stream, [*parts_of(self._held(), stream.limits.leases_per_frame)] or [()]
                )
                self._on_work()
            case _:
                pass

    def frame_handled(self, stream: ClientStream) -> None:
        if stream is self._stream:
            stream.offer_credit(self._hints + _HINTS)

    def lost(self, end: StreamEnd) -> None:
        del end
        self._stream = None
        if self._renewals is not None:
            # It may have died with renewals under way.
            self._renewals.ask(self._held())

    def refused(self, error: ServiceError) -> None:
        self._stream = None
        self._on_refused(DurableError(error))

    def _heed(self, verdicts: Sequence[lease_pb2.LeaseVerdict]) -> None:
        by_key = {each.key: each for each in self._held()}
        canceled = []
        for verdict in verdicts:
            held = by_key.get((verdict.lease.task_id, verdict.lease.fence))
            if held is None:
                # Its claim may not be answered yet. A cancel that is not acknowledged comes again.
                continue
            held.heed(verdict, self._asked_at)
            if verdict.state == lease_pb2.LEASE_STATE_CANCEL_REQUESTED:
                canceled.append(verdict.lease)
        if canceled and self._stream is not None:
            ack = worker_service_pb2.TaskCancelAck(leases=canceled)
            self._stream.send(worker_service_pb2.WorkerItem(cancel_ack=ack), control=True)

    def _send_inventory(self, stream: ClientStream, parts: Sequence[Sequence[HeldTask]]) -> None:
        for position, part in enumerate(parts):
            inventory = _inventory(part, more=position + 1 < len(parts))
            stream.send(worker_service_pb2.WorkerItem(inventory=inventory), control=True)


def _inventory(held: Sequence[HeldTask], *, more: bool) -> worker_service_pb2.LeaseInventory:
    return worker_service_pb2.LeaseInventory(leases=[each.ref for each in held], more=more)
