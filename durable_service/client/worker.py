"""A worker: claims tasks, runs their handlers, keeps their leases, and tells how they ended."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from durable_service.client.actions import Action
from durable_service.client.claimer import Claimer, Won
from durable_service.client.client import Client
from durable_service.client.connectors.lease_binding import AnyConnector
from durable_service.client.errors import DurableError
from durable_service.client.handler import Handler, drivers_of
from durable_service.client.held_task import HeldTask
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.open_claims import SPENT, OpenClaims, Wanted
from durable_service.client.recoverer import Recoverer
from durable_service.client.recovery import NotClaimed, claim_for_recovery, claim_task, reconcile_all
from durable_service.client.renewals import Renewals
from durable_service.client.stop_signal import StopCause
from durable_service.client.task_run import OnEnd, RunEnd, RunReport, TaskRun
from durable_service.client.task_view import Task, task_of
from durable_service.client.worker_session import FINAL_REASONS, WORKER_PLANE, WorkerSession
from durable_service.core.definition import Driver
from service_common.deadlines import within
from service_common.dual_calls import DualCalls
from service_common.session_client import SessionClient

logger = logging.getLogger("sealwork.client")

SLOTS: Final = 8
GRACE_SECONDS: Final = 30.0
_FLUSH_SECONDS: Final = 5.0
# Something on the way may let calls through and no streams. That is slower, and works.
_STREAM_SECONDS: Final = 3.0


class Worker:
    """Runs handlers for the tasks of their drivers, several at a time.

    When somebody cancels a task, its handler's asyncio task is cancelled; effects under way are let finish.
    When the lease is lost, or its time is over by this worker's own clock, effects are cut off too, and
    nothing more is written.

    async with Client(...) as client:
        await Worker(client, {"report@1": make_report}).run()
    """

    def __init__(
        self,
        client: Client,
        handlers: Mapping[str, Handler],
        *,
        worker_id: str | None = None,
        slots: int = SLOTS,
        connectors: Sequence[AnyConnector] = (),
        on_end: OnEnd | None = None,
    ) -> None:
        """Prepare; nothing is connected before `run`.

        Args:
            client: The service, as a principal with the role worker.
            handlers: By driver, written `ID@VERSION`, what executes it.
            worker_id: Tells processes that run side by side apart, 1 to 128 characters; random by default.
            slots: Tasks at a time.
            connectors: Asked, while the worker runs, about effects of unknown outcome in tasks of its
                drivers. Without them such tasks wait for `recover`, called here or by an operator.
            on_end: Told how each run has ended.

        Raises:
            ValueError: A driver has another form.
        """
        self.worker_id = worker_id or f"worker-{uuid.uuid4().hex}"
        self._handlers: dict[Driver, Handler] = drivers_of(handlers)
        self._client = client
        self._slots = slots
        self._connectors = tuple(connectors)
        self._on_end = on_end
        self._held: dict[tuple[str, int], HeldTask] = {}
        self._runs: dict[tuple[str, int], asyncio.Task[RunReport]] = {}
        self._stopping = False
        self._over = asyncio.Event()
        self._refusal: Exception | None = None
        self._calls = DualCalls(client.calls, lambda: self._sessions.stream)
        self._claims = OpenClaims(client.calls, self.worker_id, list(self._handlers))
        self._session = WorkerSession(
            client.principal_id,
            self.worker_id,
            uuid.uuid4().hex,
            list(self._handlers),
            held=self._leases,
            settle_claims=self._settle_claims,
            on_work=self._wake,
            on_refused=self._refused,
            clock=client.clock,
        )
        self._sessions = SessionClient(
            WORKER_PLANE,
            self._session,
            client.connection.session_channel,
            caller=client.principal_id,
            signer=client.signer,
            clock=client.clock,
            random=client.random,
            final_reasons=FINAL_REASONS,
        )
        self._renewals = Renewals(
            client.calls,
            lambda: self._sessions.stream,
            self._leases,
            self._calls.spawn,
            clock=client.clock,
            random=client.random,
        )
        self._session.serve(self._renewals)
        self._claimer = Claimer(
            client.calls,
            self._claims,
            self.worker_id,
            free_slots=self._free_slots,
            has_stream=lambda: self.connected,
            on_won=self._take,
            clock=client.clock,
            random=client.random,
        )

        self._recoverer = Recoverer(
            client.tasks,
            lambda task_id: self.recover(task_id, self._connectors),
            list(self._handlers),
            clock=client.clock,
            random=client.random,
        )

    async def __aenter__(self) -> Self:
        """Keep the leases of `run_task` and `recover`, without a stream and without claiming by itself."""
        self._renewals.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    @property
    def connected(self) -> bool:
        """Whether there is a stream to the service now."""
        return self._sessions.stream is not None

    @property
    def active(self) -> int:
        """How many tasks are held."""
        return len(self._held)

    async def run(self, *, at_once: bool = True) -> None:
        """Serve until `stop`, over as many streams as it takes.

        Cancelling it cuts off at once what runs, and gives it back.

        Args:
            at_once: Connect without the random delay that keeps many workers from coming in one instant.

        Raises:
            DurableError: The service will not have this worker; another try cannot change that.
        """
        self._renewals.start()
        self._sessions.start(at_once=at_once)
        claiming = asyncio.get_running_loop().create_task(self._claim())
        if self._connectors:
            self._calls.spawn(self._recoverer.run())
        try:
            await self._over.wait()
        finally:
            self._claimer.stop()
            claiming.cancel()
            await self._close()
        if self._refusal is not None:
            raise self._refusal

    async def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Claim nothing more, let what runs finish within the grace, give back the rest; `run` returns."""
        if self._stopping:
            return
        self._stopping = True
        self._session.drain()
        self._claimer.stop()
        self._calls.spawn(self._claimer.give_back())
        try:
            await within(self._client.clock, grace_seconds, self._idle())
        except TimeoutError:
            logger.warning(
                "the grace of %.0f seconds is over; %d tasks are given back", grace_seconds, self.active
            )
        self._over.set()

    async def opened(self) -> None:
        """Return once there is a stream.

        Raises:
            DurableError: There will be none any more.
        """
        await self._sessions.opened()

    async def run_task(self, task_id: str, handler: Handler | None = None) -> RunReport | NotClaimed:
        """Claim one task by its id, run its handler, and return how that ended, or why it was not claimed.

        Args:
            task_id: The task.
            handler: Runs it; by default the handler of its driver. Without either it is given back.

        Raises:
            DurableError: The service refused.
        """
        won = await self._claim_by_id(Wanted(task_id))
        return won if isinstance(won, NotClaimed) else await self._begin(won, handler)

    async def recover(
        self, task_id: str, connectors: Iterable[AnyConnector]
    ) -> Sequence[Action] | NotClaimed:
        """Settle the open outcomes of a task by what its connectors find, and give it back.

        Args:
            task_id: The task.
            connectors: For each action the one of its version is asked; actions without one stay open.

        Returns:
            The actions as they stand now, or why the task was not claimed.

        Raises:
            DurableError: The service refused.
            LeaseLostError: The lease was lost on the way; what was settled stays settled.
        """
        won = await self._claim_by_id(Wanted(task_id, recovery=True))
        if isinstance(won, NotClaimed):
            return won
        self._hold(won.held)
        try:
            calls = LeaseCalls(won.held, self._calls, self._client.calls)
            return await reconcile_all(calls, connectors)
        finally:
            self._forget(won.held)

    # -- tasks that are held ------------------------------------------------------------

    async def _claim(self) -> None:
        try:
            # A lease that is granted beside a hello that does not name it would be taken back.
            with contextlib.suppress(TimeoutError):
                await within(self._client.clock, _STREAM_SECONDS, self.opened())
            await self._claimer.run()
        except DurableError as error:
            self._refused(error)
        except Exception as error:  # noqa: BLE001 - a worker that claims nothing more must not look alive
            logger.error("claiming has broken down: %s", type(error).__name__)
            self._refusal = error
            self._over.set()

    async def _claim_by_id(self, wanted: Wanted) -> Won | NotClaimed:
        repeated = self._claims.is_open(wanted)
        try:
            return await self._claim_once(wanted)
        except DurableError as error:
            if not (repeated and error.reason in SPENT):
                raise
            # The lease of a claim whose answer was lost has run out since.
            return await self._claim_once(wanted)

    async def _claim_once(self, wanted: Wanted) -> Won | NotClaimed:
        sent_at = self._client.clock.monotonic()
        claim = claim_for_recovery if wanted.recovery else claim_task
        async with self._claims.of(wanted) as claim_id:
            claimed = await claim(self._client.calls, wanted.task_id, self.worker_id, claim_id)
            if isinstance(claimed, NotClaimed):
                return claimed
            won = await self._claimer.won(claimed, sent_at)
        return NotClaimed(wanted.task_id, "leased") if won is None else won

    def _take(self, won: Won) -> None:
        self._begin(won)

    def _begin(self, won: Won, handler: Handler | None = None) -> "asyncio.Task[RunReport]":
        self._hold(won.held)
        task = asyncio.get_running_loop().create_task(self._run(won, handler))
        self._runs[won.held.key] = task
        task.add_done_callback(_looked_at)
        return task

    async def _run(self, won: Won, handler: Handler | None) -> RunReport:
        held = won.held
        if self._stopping:
            # Won by the last claim, after the word to stop.
            held.signal.set(StopCause.WORKER_STOPS)
        try:
            task = task_of(won.claimed.task)
            calls = LeaseCalls(held, self._calls, self._client.calls)
            report = await TaskRun(task, calls, handler or self._handler_for(task)).run()
            self._tell(report)
            return report
        finally:
            self._runs.pop(held.key, None)
            self._forget(held)

    def _handler_for(self, task: Task) -> Handler | None:
        driver = None if task.definition is None else task.definition.driver
        return None if driver is None else self._handlers.get(driver)

    def _tell(self, report: RunReport) -> None:
        if report.end in {RunEnd.FAILED, RunEnd.RECOVERY_REQUIRED, RunEnd.REFUSED, RunEnd.LEASE_LOST}:
            # Without the text of a handler's error: it might quote what it worked on.
            error = "" if report.error is None else type(report.error).__name__
            logger.warning("the run of task %s ended: %s %s", report.task_id, report.end.value, error)
        else:
            logger.info("the run of task %s ended: %s", report.task_id, report.end.value)
        if self._on_end is not None:
            self._on_end(report)
        if report.end is RunEnd.RECOVERY_REQUIRED:
            self._recoverer.wake()

    def _hold(self, held: HeldTask) -> None:
        self._held[held.key] = held
        self._renewals.claimed(held)

    def _forget(self, held: HeldTask) -> None:
        held.end()
        self._held.pop(held.key, None)
        self._claimer.wake()

    def _wake(self) -> None:
        self._claimer.wake()

    async def _settle_claims(self) -> None:
        await self._claimer.settle()

    def _leases(self) -> Sequence[HeldTask]:
        return [held for held in self._held.values() if held.is_held]

    def _free_slots(self) -> int:
        return 0 if self._stopping else max(0, self._slots - len(self._held))

    # -- the end ------------------------------------------------------------------------

    def _refused(self, error: DurableError) -> None:
        self._refusal = error
        self._stopping = True
        for held in tuple(self._held.values()):
            held.lose(f"the service does not have this worker any more: {error.reason}")
        self._over.set()

    async def _idle(self) -> None:
        while self._runs:
            await asyncio.wait(self._runs.values())

    async def _given_back(self) -> None:
        await asyncio.gather(self._idle(), self._claimer.give_back())

    async def _close(self) -> None:
        self._stopping = True
        for held in tuple(self._held.values()):
            held.signal.set(StopCause.WORKER_STOPS)
        try:
            await within(self._client.clock, _FLUSH_SECONDS, self._given_back())
        except TimeoutError:
            if self._runs:
                logger.error("a handler does not stop when it is cancelled; it is left behind")
            for task in tuple(self._runs.values()):
                task.cancel()
        finally:
            self._renewals.stop()
            await self._sessions.close("the worker stops")
            # Not the client's calls: the client is its owner's.
            await self._calls.end()


def _looked_at(task: "asyncio.Task[RunReport]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a run could not be carried out: %s", type(error).__name__)
