"""A site: publishes jobs, seals each to the device that claims it, and opens what comes back."""

import logging
import uuid
from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Final, Literal, Self

from relay_service.client.calls import (
    ACK_RESULTS,
    CANCEL_JOB,
    ENQUEUE_JOB,
    GET_JOB,
    GET_RESULT,
    Calls,
    RequestSigner,
)
from relay_service.client.connection import Connection
from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import RelayError, SiteClosedError
from relay_service.client.keys import Keys
from relay_service.client.payloads import Payload
from relay_service.client.signing_keys import BAD_SIGNATURE, CurrentSigner, SigningKeys
from relay_service.client.site_catch_up import CatchUp
from relay_service.client.site_envelopes import JobResult, SiteEnvelopes, Trust
from relay_service.client.site_hand_over import Admit, HandOver
from relay_service.client.site_inbox import InboxReader
from relay_service.client.site_jobs import JobHandle, JobTable, SiteJob, make_stub, plaintext_of
from relay_service.client.site_listening import Listening
from relay_service.client.site_notices import NoticeDesk, OnOrphan
from relay_service.client.site_session import SITE_SESSION, SiteSession
from relay_service.client.site_settlement import Settlement
from relay_service.core.model import Audience
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from service_common.clocks import Clock, SystemClock
from service_common.deadlines import within
from service_common.session_client import FINAL_REASONS, SessionClient

__all__ = ["Admit", "HandOver", "JobHandle", "JobResult", "Site"]

logger = logging.getLogger("sealwork.client")

CONNECT_SECONDS: Final = 15.0
DEADLINE_MS: Final = 900_000

_FLUSH_SECONDS: Final = 5.0


class Site:
    """One process of a site, connected to a relay.

    Use it as an async context manager and share it between the tasks of a process.

        async with Site("127.0.0.1:7443", site_id="shop", keys=keys) as site:
            job = await site.enqueue(GeneratePayload("Say hello."), owner="alice")
            print((await job.result()).text)

    Plaintexts are kept here until their job ends; the relay only ever holds what is sealed.

    Attributes:
        site_id: Its id at the relay.
    """

    def __init__(  # noqa: PLR0913 - options, all of them named
        self,
        address: str | Connection,
        *,
        site_id: str,
        keys: Keys,
        earlier_keys: Sequence[Keys] = (),
        trust: Trust | None = None,
        on_orphan: OnOrphan | None = None,
        streams: bool = True,
        acknowledge: bool = True,
        connect_timeout: float | None = CONNECT_SECONDS,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Prepare; nothing is connected before the `async with`.

        Args:
            address: The relay, `host:port` or `unix:PATH`; a `Connection` for TLS.
            site_id: This site's id at the relay.
            keys: Its keys. The relay's projection has to name their key id.
            earlier_keys: Keys from before a rotation. They are used while the relay does not take the present
                ones; jobs that were published under them are sealed by them, and results that are sealed to
                them are opened.
            trust: Tells whether to seal to a device, given its identity and runner id. Without it, every
                one is trusted that the relay names.
            on_orphan: Told of notices about jobs that this process did not enqueue. They stay unsettled, and
                come again, unless `settle` is called.
            streams: False to go without a long-lived stream, by unary calls alone.
            acknowledge: Settle a job as soon as its result has been handed over; see `JobHandle.result`.
            connect_timeout: Seconds to wait for the first stream; None waits for ever.
            clock: Times everything.
            random: Jitter.

        Raises:
            ValueError: The address or the id cannot be used.
        """
        connection = Connection(address) if isinstance(address, str) else address
        self.site_id = site_id
        self._clock = clock or SystemClock()
        self._random = random or Random()  # noqa: S311 - jitter, not a secret
        self._earlier_key_ids = frozenset(each.key_id for each in earlier_keys)
        self._acknowledge = acknowledge
        self._connect_timeout = connect_timeout
        self._jobs = JobTable()
        self._all_keys = (keys, *earlier_keys)
        self._signing = SigningKeys([each.signer for each in self._all_keys])
        self._hello_position: int | None = None
        signer = RequestSigner(site_id, self._signing, self._clock)
        self._unary = Calls(connection.calls_channel, signer, clock=self._clock, random=self._random)
        handler = SiteSession(
            site_id,
            uuid.uuid4().hex,
            self._notice,
            self._gap,
            self._fail_all,
            self._clock,
            on_hello=self._choose_key,
        )
        self._session = SessionClient(
            SITE_SESSION,
            handler,
            connection.session_channel,
            caller=site_id,
            signer=CurrentSigner(self._signing),
            clock=self._clock,
            random=self._random,
            # With more keys than one a refusal of one of them is no last word.
            final_reasons=FINAL_REASONS - {BAD_SIGNATURE} if earlier_keys else FINAL_REASONS,
        )
        self._calls = DualCalls(self._unary, lambda: self._session.stream)
        self._settlement = Settlement(self._calls)
        self._envelopes = SiteEnvelopes(keys, self._clock, earlier_keys=earlier_keys, trust=trust)
        self._desk = NoticeDesk(self._jobs, self._envelopes, self._calls, self._settlement, on_orphan)
        self._inbox = InboxReader(self._unary, self._notice, clock=self._clock, random=self._random)
        self._catch_up = CatchUp(self._jobs, self._inbox, self._calls, self._settlement, self._clock)
        self._listening = Listening(
            self._session, self._inbox, self._calls, self._clock, streams=streams, on_refused=self._fail_all
        )
        self._refusal: RelayError | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._listening.start(self._connect_timeout)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Tell the relay what it may forget, say goodbye, and end what waits with `SiteClosedError`."""
        try:
            await within(self._clock, _FLUSH_SECONDS, self._settlement.flush())
        except TimeoutError:
            logger.warning("the relay does not answer; it will send again what was not settled")
        finally:
            await self._stop()

    async def enqueue(  # noqa: PLR0913 - options, all of them named
        self,
        payload: Payload | str,
        *,
        owner: str,
        kind: str | None = None,
        audience: Audience | Literal["private", "team"] = Audience.TEAM,
        purpose: str | None = None,
        job_id: str | None = None,
        deadline_ms: int = DEADLINE_MS,
        deadline_at_ms: int | None = None,
        admit: Admit | None = None,
        acknowledge: bool | None = None,
    ) -> JobHandle:
        """Publish a job. The payload stays here until a device has claimed it.

        Idempotent by `job_id`: a job that the relay has is taken up as it stands, so a process that was
        restarted gets at its jobs by enqueueing them again.

        Args:
            payload: What is to be done; text for a kind of your own.
            owner: The person whose work it is.
            kind: The kind of work; that of the payload by default.
            audience: `private` for devices of the owner alone, `team` for those that admit the owner too.
            purpose: A need that the site has declared.
            job_id: 1 to 128 characters, unique within the site; a random one by default.
            deadline_ms: After this many milliseconds the work is pointless.
            deadline_at_ms: The instant, epoch milliseconds, in place of `deadline_ms`.
            admit: Asked before the payload leaves, each time that a device has claimed the job; only then
                can the work begin.
            acknowledge: For this job, in place of what the site was made with.

        Raises:
            RelayError: The relay refused, or cannot be reached.
            ValueError: The payload does not fit the kind.
        """
        if self._refusal is not None:
            raise self._refusal
        job_kind, plaintext, text_length = plaintext_of(payload, kind)
        stub = make_stub(
            job_id=uuid.uuid4().hex if job_id is None else job_id,
            kind=job_kind,
            owner=owner,
            site_key_id=await self._key_id_for(job_id),
            audience=Audience(audience),
            purpose=purpose,
            text_length=text_length,
            deadline_at_ms=self._clock.now_ms() + deadline_ms if deadline_at_ms is None else deadline_at_ms,
        )
        job = self._jobs.get(stub.id) or await self._publish_as_signed(SiteJob(stub, plaintext, admit))
        told = self._acknowledge if acknowledge is None else acknowledge
        return self._handle_of(job, acknowledge=told)

    async def cancel(self, job_id: str) -> bool:
        """Withdraw a job of this site, of whichever process.

        Returns:
            Whether the relay knew it.

        Raises:
            RelayError: The relay could not be told.
        """
        request = site_plane_pb2.CancelJobRequest(job_id=job_id)
        return (await self._calls.call("cancel_job", CANCEL_JOB, request)).cancelled

    async def read_result(self, job_id: str) -> JobResult:
        """Read and open a result of this site, of whichever process. It is not settled by that.

        Raises:
            RelayError: There is none, or the relay cannot be reached.
            ResultRefusedError: It must not be used.
        """
        request = site_plane_pb2.GetResultRequest(job_id=job_id)
        answer = await self._calls.call("get_result", GET_RESULT, request)
        return self._envelopes.open(job_pb2.JobStub(id=job_id), answer, {})

    async def read_inbox(self) -> None:
        """Handle what the inbox holds now, to its end, as if it had been pushed.

        Raises:
            RelayError: The relay refuses, or cannot be reached.
        """
        await self._inbox.read_all()

    async def settle(self, *, job_ids: Sequence[str] = (), notice_ids: Sequence[str] = ()) -> Sequence[str]:
        """Let the relay forget what this process has not enqueued; returns what there was to settle.

        Raises:
            RelayError: The relay could not be told.
        """
        request = site_plane_pb2.AckResultsRequest(job_ids=job_ids, notice_ids=notice_ids)
        return list((await self._calls.call("ack_results", ACK_RESULTS, request)).settled_ids)

    # -- starting and stopping ----------------------------------------------------------

    async def _stop(self) -> None:
        try:
            await self._session.close("the site is closed")
        finally:
            await self._calls.close()
            for job in self._jobs:
                job.fail(SiteClosedError(job.stub.id))

    def _choose_key(self) -> None:
        """Before each stream: not by the key that the relay has just refused."""
        failure, used = self._session.failure, self._hello_position
        if failure is not None and failure.reason == BAD_SIGNATURE and used is not None:
            self._signing.refused(used)
        self._hello_position = self._signing.position

    # -- jobs ---------------------------------------------------------------------------

    def _handle_of(self, job: SiteJob, *, acknowledge: bool) -> JobHandle:
        settle, forget = self._desk.settle, self._jobs.forget
        return JobHandle(job, self.cancel, settle, forget, acknowledge=acknowledge)

    async def _key_id_for(self, job_id: str | None) -> str:
        """A job that was published before a rotation keeps the key that its stub names."""
        key_id = self._signing_key_id
        if job_id is None or not self._earlier_key_ids:
            return key_id
        try:
            job = await self._calls.call("get_job", GET_JOB, site_plane_pb2.GetJobRequest(job_id=job_id))
        except RelayError as error:
            if error.reason != "JOB_NOT_FOUND":
                raise
            return key_id
        return job.stub.site if job.stub.site in self._earlier_key_ids else key_id

    @property
    def _signing_key_id(self) -> str:
        return self._all_keys[self._signing.position].key_id

    async def _publish_as_signed(self, job: SiteJob) -> SiteJob:
        try:
            return await self._publish(job)
        except RelayError as error:
            # The relay took another key than the stub names: the site's keys change hands at this moment.
            if error.reason != "STUB_SITE_MISMATCH" or job.stub.site == self._signing_key_id:
                raise
        job.stub.site = self._signing_key_id
        return await self._publish(job)

    async def _publish(self, job: SiteJob) -> SiteJob:
        # Known before it is published: a device may claim it before the answer is here.
        self._jobs.add(job)
        request = site_plane_pb2.EnqueueJobRequest(stub=job.stub)
        try:
            with self._settlement.publishing([job.stub.id]):
                answer = await self._calls.call("enqueue_job", ENQUEUE_JOB, request)
        except BaseException:
            self._jobs.forget(job)
            raise
        if not answer.created:
            self._desk.take_up(job)
            if answer.state == job_pb2.JOB_STATE_DONE:
                self._desk.fetch_result(job)
        return job

    def _notice(self, notice: site_plane_pb2.SiteNotice) -> None:
        self._desk.handle(notice)

    def _gap(self) -> None:
        self._catch_up.start()

    def _fail_all(self, error: RelayError) -> None:
        self._refusal = error
        for job in self._jobs:
            job.fail(error)
