"""A small synchronous client for scripts: no event loop, no stream, no thread left behind.

It asks one thing at a time by unary calls. A program that has many jobs under way wants `site.Site`.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from random import Random
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from relay_service.client.calls import (
    ACK_RESULTS,
    ATTEMPTS,
    CALL_SECONDS,
    CANCEL_JOB,
    ENQUEUE_JOB,
    GET_RESULT,
    LIST_NOTICES,
    SEAL_PAYLOAD,
    Method,
    RequestSigner,
    as_it_is,
    may_help_again,
    pause_before,
    relay_error,
)
from relay_service.client.connection import Connection
from relay_service.client.errors import JobEndedError, RelayError
from relay_service.client.keys import Keys
from relay_service.client.payloads import GeneratePayload, Payload
from relay_service.client.site_envelopes import JobResult, SiteEnvelopes, Trust, UntrustedDevice
from relay_service.client.site_jobs import make_stub, plaintext_of
from relay_service.client.wire import identity_from_proto, job_end_of
from relay_service.core.identity import PublicIdentity
from relay_service.core.model import Audience
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from service_common.clocks import Clock, SystemClock

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

DEADLINE_MS: Final = 900_000

_PAGE: Final = 500
_WAIT_SECONDS: Final = 10
# A refused payload is no fault of this client when the job has moved on meanwhile.
_MOVED_ON: Final = frozenset({"JOB_CANCELLED", "JOB_NOT_FOUND", "NOT_AWAITING_PAYLOAD", "STALE_LEASE"})


class BlockingSite:
    """A site for scripts.

    with BlockingSite("127.0.0.1:7443", site_id="shop", keys=keys) as site:
        print(site.ask("Say hello.", owner="alice").text)
    """

    def __init__(
        self,
        address: str | Connection,
        *,
        site_id: str,
        keys: Keys,
        earlier_keys: Sequence[Keys] = (),
        trust: Trust | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is connected before the first call.

        Args:
            address: The relay, `host:port` or `unix:PATH`; a `Connection` for TLS.
            site_id: This site's id at the relay.
            keys: Its keys. The relay's projection has to name their key id.
            earlier_keys: Keys from before a rotation, so that results sealed to them can be opened.
            trust: Tells whether to seal to a device, given its identity and runner id.
            clock: Tells the time.
            sleep: Waits that many seconds between attempts.

        Raises:
            ValueError: The address or the id cannot be used.
        """
        connection = Connection(address) if isinstance(address, str) else address
        self._clock = clock or SystemClock()
        self._keys = keys
        self._sleep = sleep
        self._random = Random()  # noqa: S311 - jitter, not a secret
        self._signer = RequestSigner(site_id, keys.signer, self._clock)
        self._envelopes = SiteEnvelopes(keys, self._clock, earlier_keys=earlier_keys, trust=trust)
        self._channel = connection.blocking_channel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def ask(
        self,
        prompt: str | Payload,
        *,
        owner: str,
        audience: Audience | Literal["private", "team"] = Audience.TEAM,
        purpose: str | None = None,
        job_id: str | None = None,
        deadline_ms: int = DEADLINE_MS,
    ) -> JobResult:
        """Publish a job, seal it to the device that claims it, and return what comes back.

        Interrupted or given up, the job is withdrawn.

        Args:
            prompt: What is to be done; text is the prompt of `llm.generate`.
            owner: The person whose work it is.
            audience: `private` for devices of the owner alone, `team` for those that admit the owner too.
            purpose: A need that the site has declared.
            job_id: 1 to 128 characters; a random one by default. A job that the relay has is taken up.
            deadline_ms: After this many milliseconds the work is pointless.

        Raises:
            RelayError: The relay refused, or cannot be reached.
            JobEndedError: The job ended without a result.
            ResultRefusedError: The result must not be used.
        """
        payload = GeneratePayload(prompt) if isinstance(prompt, str) else prompt
        kind, plaintext, text_length = plaintext_of(payload, None)
        stub = make_stub(
            job_id=uuid.uuid4().hex if job_id is None else job_id,
            kind=kind,
            owner=owner,
            site_key_id=self._keys.key_id,
            audience=Audience(audience),
            purpose=purpose,
            text_length=text_length,
            deadline_at_ms=self._clock.now_ms() + deadline_ms,
        )
        self.call(ENQUEUE_JOB, site_plane_pb2.EnqueueJobRequest(stub=stub))
        over = False
        try:
            result = self._follow(stub, plaintext)
            over = True
            return result
        except JobEndedError:
            over = True
            raise
        finally:
            if not over:
                self._withdraw(stub.id)

    def cancel(self, job_id: str) -> bool:
        """Withdraw a job; returns whether the relay knew it.

        Raises:
            RelayError: The relay could not be told.
        """
        return self.call(CANCEL_JOB, site_plane_pb2.CancelJobRequest(job_id=job_id)).cancelled

    def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: float = CALL_SECONDS
    ) -> ResponseT:
        """Make a signed call, and make it again when it got no answer.

        Raises:
            RelayError: It was refused, or no attempt was answered.
        """
        body = request.SerializeToString()
        attempt = 1
        while True:
            try:
                return self._once(method, body, timeout)
            except RelayError as error:
                if attempt >= ATTEMPTS or not may_help_again(error):
                    raise
                self._sleep(pause_before(attempt, error, self._random))
            attempt += 1

    def _once(self, method: Method[Any, ResponseT], body: bytes, timeout: float) -> ResponseT:
        call = self._channel.unary_unary(method.path, as_it_is, method.response.FromString)
        try:
            response: ResponseT = call(body, timeout=timeout, metadata=self._signer.metadata(method, body))
        except grpc.RpcError as error:
            # Whatever the blocking library raises for a call is that call as well.
            raise relay_error(error) from None  # type: ignore[arg-type]
        return response

    def _follow(self, stub: job_pb2.JobStub, plaintext: str) -> JobResult:
        sealed_to: dict[str, PublicIdentity] = {}
        for notice in self._notices_of(stub.id):
            match notice.WhichOneof("notice"):
                case "please_seal":
                    self._seal(stub, plaintext, notice.please_seal, sealed_to)
                case "result_ready":
                    answer = self.call(GET_RESULT, site_plane_pb2.GetResultRequest(job_id=stub.id))
                    try:
                        return self._envelopes.open(stub, answer, sealed_to)
                    finally:
                        self._settle(stub.id)
                case "job_ended":
                    self._settle(stub.id)
                    raise JobEndedError(stub.id, job_end_of(notice.job_ended))
                case _:
                    pass
        raise AssertionError("an inbox has no end")

    def _notices_of(self, job_id: str) -> Iterator[site_plane_pb2.SiteNotice]:
        token = ""
        while True:
            request = site_plane_pb2.ListNoticesRequest(
                page_size=_PAGE, page_token=token, wait=Duration(seconds=_WAIT_SECONDS)
            )
            page = self.call(LIST_NOTICES, request, timeout=CALL_SECONDS + _WAIT_SECONDS)
            token = page.next_page_token
            # Those of other jobs are left alone: another process waits for them.
            yield from (notice for notice in page.notices if notice.job_id == job_id)

    def _seal(
        self,
        stub: job_pb2.JobStub,
        plaintext: str,
        notice: site_plane_pb2.PleaseSeal,
        sealed_to: dict[str, PublicIdentity],
    ) -> None:
        try:
            request = self._envelopes.seal(stub, plaintext, notice)
        except UntrustedDevice:
            # The window passes, and another device may claim.
            return
        sealed_to[notice.lease_id] = identity_from_proto(notice.device)
        try:
            self.call(SEAL_PAYLOAD, request)
        except RelayError as error:
            if error.reason not in _MOVED_ON:
                raise

    def _settle(self, job_id: str) -> None:
        # What cannot be settled now is no reason to keep the answer back; the relay forgets it in a day.
        with contextlib.suppress(RelayError):
            self.call(ACK_RESULTS, site_plane_pb2.AckResultsRequest(job_ids=[job_id]))

    def _withdraw(self, job_id: str) -> None:
        body = site_plane_pb2.CancelJobRequest(job_id=job_id).SerializeToString()
        with contextlib.suppress(RelayError):
            # One attempt: whoever gives up does not want to wait for it.
            self._once(CANCEL_JOB, body, CALL_SECONDS)
