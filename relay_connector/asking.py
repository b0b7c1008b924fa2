"""Asking one question of one task, and looking up what came of it."""

import contextlib
import logging
from dataclasses import dataclass
from random import Random
from typing import Final

from durable_service.client.actions import Action
from durable_service.client.connectors import Absent, Finding, Found, Unsettled
from durable_service.client.errors import NotSentError
from durable_service.client.records import Records
from durable_service.client.stop_signal import StopSignal
from relay_connector.answer import Answer, WhyNone
from relay_connector.giving import DAY_MS, Giving, was_given
from relay_connector.keeping import keep_answer, kept_answer
from relay_connector.question import Question, QuestionError, job_id_of, question_of
from relay_connector.waiting import Wait
from relay_service.client.errors import RelayError
from relay_service.client.site import JobHandle, JobResult, Site
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.unary_calls import may_help_again

logger = logging.getLogger("sealwork.client")

# The clocks of a site and its relay are at most so far apart, or the relay would not hear the site.
SKEW_MS: Final = 120_000
_PAUSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every question of a connector; its fields are those of `RelayConnector`."""

    destination: str
    again: bool
    keep_ms: int
    clock: Clock


class Asking:
    """The connector for one lease of one task.

    Attributes:
        version: `relay@1`.
    """

    version = "relay@1"

    def __init__(self, site: Site, records: Records, terms: Terms) -> None:
        """Ask by a site, and keep what comes of it in these records."""
        self._site = site
        self._records = records
        self._terms = terms
        self._clock = terms.clock
        self._random = Random()  # noqa: S311 - jitter, not a secret

    async def dispatch(self, action: Action, signal: StopSignal) -> str:
        """Ask, wait for what comes of it, keep that, and return where.

        The job stays at the relay: it is settled when the service has confirmed the action, and not before,
        since a relay that has been told to forget a job would take it for a new one.

        Raises:
            NotSentError: No device has got the prompt, and none will.
            OutcomeOpenError: A device has got it, and what comes of it is to be looked up.
            ResultRefusedError: What came must not be used.
            Exception: The relay or the durable service refused, after a device has got the prompt.
        """
        try:
            question = self._question_of(action)
        except QuestionError as error:
            raise NotSentError(str(error)) from error
        job_id = job_id_of(action)
        left_ms = question.deadline_at_ms - self._clock.now_ms()
        if left_ms <= 0 or signal.is_set:
            raise NotSentError("it is too late to ask, or the task is to end")
        giving = Giving(
            self._records,
            job_id,
            # As long as the relay may have a result of it.
            keep_ms=left_ms + DAY_MS + SKEW_MS,
            again=self._terms.again,
            clock=self._clock,
        )
        try:
            handle = await self._enqueue(question, job_id, giving, signal)
            try:
                until_ms = question.deadline_at_ms + SKEW_MS
                waiting = Wait(handle, giving, signal, until_ms=until_ms, clock=self._clock)
                answer = await waiting.answer()
            finally:
                handle.abandon()
        finally:
            giving.close()
        return await keep_answer(self._records, job_id, answer, keep_ms=self._terms.keep_ms)

    async def reconcile(self, action: Action) -> Finding:
        """Look up what came of it. The prompt is not given to anybody by that.

        Raises:
            QuestionError: The action is not one of this connector.
            ResultRefusedError: There is a result, which must not be used.
            RelayError: The relay does not answer.
            DurableError: The service refused.
        """
        question, job_id = self._question_of(action), job_id_of(action)
        kept = await kept_answer(self._records, job_id)
        if kept is not None:
            return Found(kept, f"relay-answer-kept:{job_id}")
        # Before the look: what was not there when it was over can never be there.
        over = self._clock.now_ms() >= question.deadline_at_ms + SKEW_MS
        seen = await self._look(job_id)
        if isinstance(seen, JobResult):
            return await self._found(job_id, Answer.of(seen), "relay-result")
        if not await was_given(self._records, job_id):
            # Who dispatched it has lost its lease, so that it can give the prompt to nobody any more.
            # One proof releases one dispatch, so it names that dispatch.
            return Absent(f"relay-prompt-not-given:{job_id}:{action.dispatch_fence}")
        if seen == "unfinished":
            return Unsettled(f"relay-job-unfinished:{job_id}")
        if not over:
            return Unsettled(f"relay-job-unknown:{job_id}")
        return await self._found(job_id, Answer.none(WhyNone.EXPIRED), "relay-job-over")

    async def settled(self, action: Action) -> None:
        """Let the relay forget the job, now that the action is confirmed.

        Raises:
            RelayError: The relay could not be told; it keeps a result for 24 hours.
        """
        await self._site.settle(job_ids=[job_id_of(action)])

    async def _enqueue(
        self, question: Question, job_id: str, giving: Giving, signal: StopSignal
    ) -> JobHandle:
        while True:
            try:
                return await self._site.enqueue(
                    question.payload,
                    owner=question.owner,
                    kind=question.kind,
                    audience=question.audience,
                    purpose=question.purpose,
                    job_id=job_id,
                    deadline_at_ms=question.deadline_at_ms,
                    admit=giving.admit,
                    acknowledge=False,
                )
            except RelayError as error:
                late = self._clock.now_ms() >= question.deadline_at_ms
                passing = may_help_again(error) or error.retry_after_ms is not None
                if late or signal.is_set or not passing:
                    # Whether or not the relay has the job: without its prompt nobody can do it.
                    raise NotSentError(f"the question could not be published: {error}") from error
                logger.info("the question %s is published again soon: %s", job_id, error)
                await self._pause(signal, (error.retry_after_ms or 0) / 1000)
            except ValueError as error:
                raise NotSentError(f"the question cannot be asked: {error}") from error

    async def _pause(self, signal: StopSignal, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            pause = seconds + self._random.uniform(0, _PAUSE_SECONDS)
            await within(self._clock, pause, signal.wait())

    async def _look(self, job_id: str) -> JobResult | str:
        try:
            return await self._site.read_result(job_id)
        except RelayError as error:
            match error.reason:
                case "RESULT_NOT_READY":
                    return "unfinished"
                case "JOB_NOT_FOUND":
                    return "unknown"
                case _:
                    raise

    async def _found(self, job_id: str, answer: Answer, evidence: str) -> Found:
        kept = await keep_answer(self._records, job_id, answer, keep_ms=self._terms.keep_ms)
        return Found(kept, f"{evidence}:{job_id}")

    def _question_of(self, action: Action) -> Question:
        if action.destination != self._terms.destination or action.connector_version != self.version:
            raise QuestionError("the action is for another destination or connector")
        try:
            return question_of(action.args)
        except QuestionError:
            raise
        except ValueError as error:
            raise QuestionError(str(error)) from None
