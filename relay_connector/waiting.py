"""Waiting for what comes of a question: its answer, a cancel of the task, a device that is gone, or time."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from durable_service.client.errors import NotSentError
from durable_service.client.stop_signal import StopCause, StopSignal
from relay_connector.answer import Answer, WhyNone
from relay_connector.giving import Giving
from relay_service.client.errors import JobEndedError, JobEndReason, RelayError, ResultRefusedError
from relay_service.client.site import JobHandle
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

# A device hears of a cancel at once; what it does not answer for so long is left to be looked up.
CANCEL_SECONDS: Final = 30.0

_WHY_NONE: Final = {
    JobEndReason.EXPIRED: WhyNone.EXPIRED,
    JobEndReason.CANCELLED: WhyNone.CANCELLED,
    JobEndReason.RESULT_DROPPED: WhyNone.DROPPED,
}


class OutcomeOpenError(Exception):
    """The prompt was given to a device, and what comes of it is not known here; it can be looked up."""


class Wait:
    """Waits for the end of one job."""

    def __init__(
        self, handle: JobHandle, giving: Giving, signal: StopSignal, *, until_ms: int, clock: Clock
    ) -> None:
        """Prepare.

        Args:
            handle: The job.
            giving: Whether its prompt has left.
            signal: Set when the task is to end.
            until_ms: When there is no hope left of hearing anything, epoch milliseconds.
            clock: Tells the time.
        """
        self._handle = handle
        self._giving = giving
        self._signal = signal
        self._until_ms = until_ms
        self._clock = clock

    async def answer(self) -> Answer:
        """Return what came of it.

        Raises:
            NotSentError: The prompt has not left and will not.
            OutcomeOpenError: It has, and what comes of it is to be looked up.
            ResultRefusedError: What came must not be used.
            RelayError: The relay will not talk to this site any more.
        """
        ending = _spawn(self._handle.result())
        news = [ending, _spawn(self._stopped()), _spawn(self._giving.given_up.wait()), _spawn(self._late())]
        try:
            await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return self._answer_of(ending)
            await self._end_it(ending)
            if self._giving.given_up.is_set():
                # Whatever else is said of the job now is said by a device that has never had the prompt.
                return Answer.none(WhyNone.GIVEN_UP)
            if ending.done():
                return self._answer_of(ending)
            raise OutcomeOpenError("the relay does not tell what became of the question")
        finally:
            for each in news:
                each.cancel()
            await asyncio.gather(*news, return_exceptions=True)

    async def _end_it(self, ending: "asyncio.Task[Any]") -> None:
        """Withdraw the job, and give the relay a while to say how that ended."""
        self._giving.close()
        try:
            await self._handle.cancel()
        except RelayError as error:
            logger.info("the job %s could not be withdrawn: %s", self._handle.id, error)
        if not self._giving.given:
            raise NotSentError("the task is to end, or it is too late to ask; the prompt has not left")
        if self._signal.is_set:
            late = _spawn(self._clock.sleep(CANCEL_SECONDS))
            await asyncio.wait((ending, late), return_when=asyncio.FIRST_COMPLETED)
            late.cancel()

    def _answer_of(self, ending: "asyncio.Task[Any]") -> Answer:
        # Nothing leaves once it is over, so that what is said here of the prompt stays true.
        self._giving.close()
        try:
            return Answer.of(ending.result())
        except ResultRefusedError:
            raise
        except Exception as error:
            if not self._giving.given:
                # Not a result that could be lost: the relay may forget that there was such a job.
                self._handle.acknowledge()
                raise NotSentError(f"the prompt has not left: {error}") from error
            if isinstance(error, JobEndedError):
                return Answer.none(_WHY_NONE.get(error.reason, WhyNone.GIVEN_UP))
            raise

    async def _stopped(self) -> None:
        if await self._signal.wait() is not StopCause.CANCEL_REQUESTED:
            # A worker that stops cuts this short; the job goes on, and whoever has the task next looks it up.
            await asyncio.Event().wait()

    async def _late(self) -> None:
        await self._clock.sleep(max(0.0, (self._until_ms - self._clock.now_ms()) / 1000))


def _spawn(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(work)
