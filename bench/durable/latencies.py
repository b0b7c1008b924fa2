"""How soon a worker of the client library knows, on a service that has nothing else to do."""

import asyncio
from abc import ABC, abstractmethod
from asyncio import Future
from time import perf_counter, time

from bench.durable.parties import (
    APPROVING,
    DRIVER_NAME,
    GRANT,
    SUBMITTING,
    WORKING,
    LibraryParty,
    new_task,
)
from bench.durable.server import SQLITE, DurableProcess
from bench.variant import BurstResult, VariantFailedError, VariantUnavailableError
from durable_service.client import (
    Action,
    ActionInput,
    ApprovalNeed,
    Client,
    DurableError,
    RunEnd,
    RunReport,
    StopSignal,
    TaskContext,
    Worker,
)
from durable_service.client.connectors.base import Absent, Finding

_OPEN_SECONDS = 20.0
_PATIENCE_SECONDS = 10.0
# So many in a row say that something is broken rather than slow.
_MOST_FAILURES = 3
_HOUR_MS = 3_600_000


class _Latency(ABC):
    """Variant: one measurement after the other until the time or their number is up."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self._most = most
        self._server = DurableProcess(SQLITE)
        self._clients: list[Client] = []
        self._running: asyncio.Task[None] | None = None
        self._worker: Worker | None = None

    async def start(self) -> None:
        await self._server.start()
        self.submitter, self.approver = self._client(SUBMITTING), self._client(APPROVING)
        worker = self._worker = Worker(
            self._client(WORKING), {DRIVER_NAME: self._handle}, on_end=self._note_end
        )
        self._running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await worker.opened()
                await self._measure()
        except (DurableError, TimeoutError) as error:
            raise VariantUnavailableError(f"the client library found no service: {error!r}") from error

    async def burst(self, seconds: float) -> BurstResult:
        meter, started = self._server.meter(), perf_counter()
        latencies: list[float] = []
        failures = in_a_row = 0
        while perf_counter() - started < seconds and len(latencies) < self._most:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    latencies.append(await self._measure() * 1000)
                in_a_row = 0
            except (TimeoutError, DurableError) as error:
                failures, in_a_row = failures + 1, in_a_row + 1
                if in_a_row == _MOST_FAILURES:
                    raise VariantFailedError(f"{in_a_row} tasks in a row failed: {error!r}") from error
        elapsed = perf_counter() - started
        return BurstResult(len(latencies), latencies, meter.cpu_seconds(), meter.rss_kib(), elapsed, failures)

    async def stop(self) -> None:
        if self._worker is not None and self._running is not None:
            await self._worker.stop(0)
            await asyncio.wait([self._running])
        for client in self._clients:
            await client.close()
        await self._server.stop()

    @abstractmethod
    async def _measure(self) -> float:
        """One task: the seconds that are measured."""

    @abstractmethod
    async def _handle(self, context: TaskContext) -> str: ...

    def _note_end(self, report: RunReport) -> None:
        """A run has ended; most variants have nothing to note."""
        del report

    def _client(self, party: LibraryParty) -> Client:
        client = Client(self._server.address, principal_id=party.principal_id, key=party.key)
        self._clients.append(client)
        return client


class HandlerCancels(_Latency):
    """From the owner's cancel, before the call, until the running handler has been cancelled."""

    async def _measure(self) -> float:
        self._started, self._cancelled = _instant(), _instant()
        task, _ = await self.submitter.tasks.create(new_task())
        await self._started
        asked = perf_counter()
        await self.submitter.tasks.cancel(task.id)
        latency = await self._cancelled - asked
        await self.submitter.tasks.wait(task.id)
        return latency

    async def _handle(self, _context: TaskContext) -> str:
        self._started.set_result(perf_counter())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._cancelled.set_result(perf_counter())
            raise
        return ""


class ApprovalWakes(_Latency):
    """From the approver's decision, before the call, until the handler of the suspended task runs again."""

    async def _measure(self) -> float:
        self._suspended, self._woken = _instant(), _instant()
        task, _ = await self.submitter.tasks.create(new_task())
        await self._suspended
        approval = await anext(aiter(self.approver.approvals.pending(task.id)))
        decided = perf_counter()
        await self.approver.approvals.decide(approval, approved=True)
        latency = await self._woken - decided
        await self.submitter.tasks.wait(task.id)
        return latency

    async def _handle(self, context: TaskContext) -> str:
        if self._suspended.done():
            self._woken.set_result(perf_counter())
        need = ApprovalNeed(APPROVING.principal_id, int(time() * 1000) + _HOUR_MS)
        return await context.execute(ActionInput("send", GRANT, approval=need), _Connector())

    def _note_end(self, report: RunReport) -> None:
        if report.end is RunEnd.SUSPENDED:
            self._suspended.set_result(perf_counter())


class _Connector:
    """Does nothing, at once."""

    version = "bench@1"

    async def dispatch(self, action: Action, _signal: StopSignal) -> str:
        return f"result:{action.id}"

    async def reconcile(self, action: Action) -> Finding:
        return Absent(f"nothing of {action.id}")


def _instant() -> Future[float]:
    return asyncio.get_running_loop().create_future()
