"""Running a job: open the payload, decide once more, log it, let the handler work, seal what came of it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from relay_service.client.breaker import Breaker
from relay_service.client.daemon_admission import Admission, Terms
from relay_service.client.daemon_jobs import Handler, HeldJob, JobContext
from relay_service.client.envelope import EnvelopeRefused, SealError, open_envelope, seal
from relay_service.client.keys import Keys
from relay_service.client.ledger import Ledger, LedgerError
from relay_service.client.outcomes import (
    CanceledOutcome,
    ErrorOutcome,
    OkOutcome,
    Outcome,
    RunMetadata,
    SealedOutcome,
    dump_outcome,
)
from relay_service.client.payloads import ChatPayload, GeneratePayload, Payload, parse_payload, utf16_length
from relay_service.client.pins import SitePins
from relay_service.client.plaintext_fields import PayloadError
from relay_service.client.prompt_log import PromptLog, PromptLogUnavailable
from relay_service.client.wire import DISPOSITIONS, envelope_from_proto, envelope_to_proto
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

_ENVELOPE_LIFE_MS: Final = 86_400_000
_KNOWN_KINDS: Final = frozenset({GeneratePayload.kind, ChatPayload.kind})
_FAILED: Final = ErrorOutcome("service_unavailable", "the device could not do the work", retryable=True)
_TOO_LARGE: Final = ErrorOutcome("output-too-large", "the answer is too large to be sealed", retryable=False)


class NotRun(Exception):  # noqa: N818 - a decision, not a failure
    """The job is given back without having been run.

    Attributes:
        reason: What the relay is told.
    """

    def __init__(self, reason: daemon_plane_pb2.ReleaseReason.ValueType, why: str) -> None:
        """Give back for this reason; the text is for the owner's log."""
        super().__init__(why)
        self.reason = reason


class Runner:
    """Turns a sealed payload into a sealed result."""

    def __init__(
        self,
        keys: Keys,
        pins: SitePins,
        admission: Admission,
        handlers: Mapping[str, Handler],
        *,
        ledger: Ledger,
        prompt_log: PromptLog | None,
        clock: Clock,
    ) -> None:
        """Run with these.

        Args:
            keys: Of this device.
            pins: The sites; a payload is verified against nothing else.
            admission: The owner's rules.
            handlers: By kind of work.
            ledger: Where grants and work for others are written down before the work.
            prompt_log: Where a payload is recorded before it is run; None records nothing.
            clock: Times runs.
        """
        self._keys = keys
        self._pins = pins
        self._admission = admission
        self._handlers = handlers
        self._ledger = ledger
        self._prompt_log = prompt_log
        self._clock = clock
        self._breaker = Breaker(clock.monotonic)

    async def run(self, job: HeldJob, message: job_pb2.SealedEnvelope) -> daemon_plane_pb2.CompleteJobRequest:
        """Run a job and return its result, ready to be delivered.

        Cancelled after the site has withdrawn the job, it returns a result that says so.

        Raises:
            NotRun: The job is to be given back.
            CancelledError: The work was stopped for any other reason; there is nothing to report.
        """
        started = self._clock.monotonic()
        try:
            wait = self._breaker.begin(job.stub.site, job.stub.id)
            if wait is None:
                raise NotRun(daemon_plane_pb2.RELEASE_REASON_REFUSED, "it has failed here too often")
            if wait:
                await self._clock.sleep(wait)
            payload, text_length = self._open(job, message)
            terms = self._admission.terms(job, text_length)
            if terms is None:
                raise NotRun(daemon_plane_pb2.RELEASE_REASON_REFUSED, "the owner's rules")
            charged = await self._begin(job, terms)
            self._pins.served(job.stub.site)
            self._log(job, payload)
            worked = await self._work(job, payload, terms)
            await self._settle(charged, terms, worked)
        except asyncio.CancelledError:
            if not job.cancel_requested:
                raise
            worked = CanceledOutcome()
        if job.cancel_requested:
            # Whatever the handler has made of it in the end: the site has been told that it is canceled.
            _forgive_cancellation()
            return self.canceled(job, started)
        return self._seal(job, worked, started)

    async def _begin(self, job: HeldJob, terms: Terms) -> int | None:
        try:
            return await self._ledger.begin(job.grant, terms.charge)
        except ValueError:
            raise NotRun(daemon_plane_pb2.RELEASE_REASON_REFUSED, "its grant was used before") from None
        except LedgerError as error:
            # A grant that is not written down could be used again after a restart.
            logger.error("the device's ledger cannot be written: %s", error)
            raise NotRun(daemon_plane_pb2.RELEASE_REASON_BACKEND_DOWN, "no ledger") from None

    async def _settle(self, charged: int | None, terms: Terms, worked: Outcome | SealedOutcome) -> None:
        outcome = worked.outcome if isinstance(worked, SealedOutcome) else worked
        if charged is not None and isinstance(outcome, OkOutcome):
            # Whatever else came of it may have cost all that it was allowed to.
            await self._ledger.settle(charged, terms.text_length + utf16_length(outcome.text))

    def canceled(self, job: HeldJob, started: float | None = None) -> daemon_plane_pb2.CompleteJobRequest:
        """Return the result of a job that the site has withdrawn."""
        return self._seal(job, CanceledOutcome(), self._clock.monotonic() if started is None else started)

    def _open(self, job: HeldJob, message: job_pb2.SealedEnvelope) -> tuple[Payload | str, int]:
        stub = job.stub
        envelope, site = envelope_from_proto(message), self._pins.get(stub.site)
        if site is None:
            raise NotRun(daemon_plane_pb2.RELEASE_REASON_REVOKED, "its site is not pinned any more")
        if envelope is None:
            raise NotRun(daemon_plane_pb2.RELEASE_REASON_BAD_ENVELOPE, "its payload is no envelope")
        try:
            # Only with the key that the stub names: any other pinned site is a stranger to this job.
            text = open_envelope(
                envelope,
                keys=self._keys,
                sender=site,
                job_id=stub.id,
                direction="payload",
                now_ms=self._clock.now_ms(),
            )
            if stub.kind not in _KNOWN_KINDS:
                return text, utf16_length(text)
            payload = parse_payload(stub.kind, text)
        except EnvelopeRefused as error:
            raise NotRun(daemon_plane_pb2.RELEASE_REASON_BAD_ENVELOPE, error.reason.value) from None
        except PayloadError as error:
            raise NotRun(daemon_plane_pb2.RELEASE_REASON_BAD_ENVELOPE, str(error)) from None
        return payload, payload.text_length

    def _log(self, job: HeldJob, payload: Payload | str) -> None:
        if self._prompt_log is None:
            return
        stub = job.stub
        try:
            self._prompt_log.log_ingress(stub.id, stub.site, stub.owner, stub.kind, prompt_text(payload))
        except PromptLogUnavailable as error:
            # The owner wants a record of everything that runs here, so nothing runs without one.
            logger.error("the prompt log cannot be written: %s", error)
            raise NotRun(daemon_plane_pb2.RELEASE_REASON_BACKEND_DOWN, "no prompt log") from None

    async def _work(self, job: HeldJob, payload: Payload | str, terms: Terms) -> Outcome | SealedOutcome:
        stub = job.stub
        context = JobContext(
            job_id=stub.id,
            kind=stub.kind,
            owner=stub.owner,
            site=stub.site,
            purpose=stub.purpose if stub.HasField("purpose") else None,
            payload=payload,
            capability=terms.capability,
            limits=terms.limits,
            own=terms.own,
            cancelled=job.cancelled,
            seconds_left=lambda: job.deadline - self._clock.monotonic(),
        )
        return await _handled(self._handlers[stub.kind], context)

    def _seal(
        self, job: HeldJob, worked: Outcome | SealedOutcome, started: float
    ) -> daemon_plane_pb2.CompleteJobRequest:
        outcome, ran = self._with_metadata(job, worked, started)
        try:
            return self._sealed(job, outcome, ran)
        except (PayloadError, SealError) as error:
            logger.error("the result of job %s cannot be sealed: %s", job.stub.id, error)
            return self._sealed(job, _TOO_LARGE, ran)

    def _with_metadata(self, job: HeldJob, worked: Outcome | SealedOutcome, started: float) -> SealedOutcome:
        if isinstance(worked, SealedOutcome):
            return worked
        row = self._admission.capability_for(job)
        ran = RunMetadata(
            model=row.model if row is not None else "unknown",
            backend_class="process" if row is not None and row.backend_class == "process" else "http",
            duration_ms=max(0, round((self._clock.monotonic() - started) * 1000)),
            stop="unknown" if worked.disposition == "ok" else None,
        )
        return SealedOutcome(worked, ran)

    def _sealed(
        self, job: HeldJob, outcome: Outcome, ran: RunMetadata
    ) -> daemon_plane_pb2.CompleteJobRequest:
        site = self._pins.get(job.stub.site)
        if site is None:
            raise NotRun(daemon_plane_pb2.RELEASE_REASON_REVOKED, "its site is not pinned any more")
        envelope = seal(
            keys=self._keys,
            recipient=site,
            job_id=job.stub.id,
            direction="result",
            plaintext=dump_outcome(outcome, ran),
            deadline_at_ms=self._clock.now_ms() + _ENVELOPE_LIFE_MS,
        )
        return daemon_plane_pb2.CompleteJobRequest(
            lease=job.lease,
            envelope=envelope_to_proto(envelope),
            disposition=DISPOSITIONS[outcome.disposition],
        )


def prompt_text(payload: Payload | str) -> str:
    """Return a payload as the owner reads it in the log."""
    match payload:
        case str():
            return payload
        case GeneratePayload():
            turns = [payload.prompt]
        case _:
            turns = [f"{message.role}: {message.content}" for message in payload.messages]
    return "\n".join(turns if payload.system is None else [f"system: {payload.system}", *turns])


async def _handled(
    handler: Callable[[JobContext], Awaitable[Outcome | SealedOutcome]], context: JobContext
) -> Outcome | SealedOutcome:
    try:
        return await handler(context)
    except Exception as error:  # noqa: BLE001 - a handler's fault is an outcome of its job
        # Neither logged nor sent: what it says may quote the payload or name things of this machine.
        logger.error("the handler of job %s failed: %s", context.job_id, type(error).__name__)
        return _FAILED


def _forgive_cancellation() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
