"""A site's jobs: what is kept of each from enqueue to the end, and the handle that its owner holds."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from relay_service.client.errors import JobAbandonedError
from relay_service.client.payloads import Payload, dump_payload, size_class, utf16_length
from relay_service.client.site_envelopes import JobResult
from relay_service.client.site_hand_over import Admit
from relay_service.client.wire import AUDIENCES, SIZE_CLASSES, timestamp_of
from relay_service.core.identity import PublicIdentity
from relay_service.core.model import Audience
from sealwork.relay.v1 import job_pb2

_REMEMBERED: Final = 16_384


class SiteJob:
    """A job that is not over yet, with its plaintext.

    Attributes:
        stub: As it was published.
        plaintext: Kept to the end: a job that goes back to the queue is sealed again, to another device.
        admit: Asked before each payload leaves; None lets every one leave.
        ending: The result, or why there is none.
        sealed_to: By lease, the device that the payload was sealed to.
        handled: Ids of the notices that need nothing more from here.
        over: The relay has said how the job ended, so it may be told to forget it.
        sealed: Set once a device has been given the payload, and at the end.
        requeues: How often the job went back to the queue, as far as was told.
    """

    __slots__ = (
        *("admit", "ending", "handled", "over", "plaintext", "requeues", "sealed", "sealed_to", "stub"),
    )

    def __init__(self, stub: job_pb2.JobStub, plaintext: str, admit: Admit | None = None) -> None:
        """Keep a job; nothing has been published yet."""
        self.stub = stub
        self.plaintext = plaintext
        self.admit = admit
        self.ending: asyncio.Future[JobResult] = asyncio.get_running_loop().create_future()
        self.sealed_to: dict[str, PublicIdentity] = {}
        self.handled: set[str] = set()
        self.over = False
        self.sealed = asyncio.Event()
        self.requeues = 0

    def finish(self, result: JobResult) -> None:
        """End with a result."""
        if not self.ending.done():
            self.ending.set_result(result)
            self._leave()

    def fail(self, error: Exception) -> None:
        """End without a result."""
        if not self.ending.done():
            self.ending.set_exception(error)
            # Whoever enqueued may have lost interest; that is no fault to be logged.
            self.ending.exception()
            self._leave()

    def _leave(self) -> None:
        self.plaintext = ""
        self.sealed.set()


class JobHandle:
    """A job that was enqueued."""

    def __init__(
        self,
        job: SiteJob,
        withdraw: Callable[[str], Coroutine[Any, Any, bool]],
        settle: Callable[[SiteJob], None],
        forget: Callable[[SiteJob], None],
        *,
        acknowledge: bool,
    ) -> None:
        """Hold a job.

        Args:
            job: The job.
            withdraw: Cancels it at the relay.
            settle: Lets the relay forget it.
            forget: Forgets it here.
            acknowledge: Settle as soon as the result has been handed over.
        """
        self._job = job
        self._withdraw = withdraw
        self._settle = settle
        self._forget = forget
        self._acknowledge = acknowledge

    @property
    def id(self) -> str:
        """Id of the job."""
        return self._job.stub.id

    @property
    def done(self) -> bool:
        """Whether `result` has its answer."""
        return self._job.ending.done()

    @property
    def is_sealed(self) -> bool:
        """Whether a device has been given the payload."""
        return self._job.sealed.is_set()

    @property
    def requeues(self) -> int:
        """How often the job went back to the queue, as far as the relay has told."""
        return self._job.requeues

    async def result(self, timeout: float | None = None) -> JobResult:
        """Return the result once it has come, opened and verified.

        Handing it over settles the job: the relay forgets it. A site that must not lose a result that it has
        not stored yet turns that off (`Site(acknowledge=False)`) and calls `acknowledge` itself.

        Args:
            timeout: Seconds to wait; None waits for as long as the job lives.

        Raises:
            JobEndedError: The job ended without a result.
            ResultRefusedError: The result must not be used.
            RelayError: The relay will not talk to this site any more, or refused the payload.
            SiteClosedError: The site was closed first.
            TimeoutError: The time was up; the job goes on.
        """
        async with asyncio.timeout(timeout):
            # Shielded: the job's end is not this caller's to cancel.
            await asyncio.wait((self._job.ending,))
        if self._acknowledge:
            self._settle(self._job)
        return self._job.ending.result()

    async def sealed(self, timeout: float | None = None) -> None:
        """Return once a device has been given the payload, or the job has ended.

        Args:
            timeout: Seconds to wait; None waits for as long as the job lives.

        Raises:
            TimeoutError: The time was up; the job goes on.
        """
        async with asyncio.timeout(timeout):
            await self._job.sealed.wait()

    async def cancel(self) -> bool:
        """Withdraw the job; its end is told by `result` as ever.

        Returns:
            Whether the relay knew it.

        Raises:
            RelayError: The relay could not be told.
        """
        return await self._withdraw(self.id)

    def acknowledge(self) -> None:
        """Let the relay forget the job, now that its end is known and safely stored here."""
        self._settle(self._job)

    def abandon(self) -> None:
        """Forget the job here: no payload of it leaves this process any more, and its end is not awaited.

        Nothing is withdrawn. The job goes on at the relay, and whoever enqueues its id again takes it up.
        """
        self._forget(self._job)
        self._job.fail(JobAbandonedError(self.id))

    def __repr__(self) -> str:
        return f"JobHandle(id={self.id!r}, done={self.done})"


class JobTable:
    """The jobs of a site that are not settled yet, and the ids of those that were lately."""

    def __init__(self) -> None:
        self._jobs: dict[str, SiteJob] = {}
        self._settled: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[SiteJob]:
        return iter(tuple(self._jobs.values()))

    def get(self, job_id: str) -> SiteJob | None:
        """Return the job, unless it is none of this process or has been settled."""
        return self._jobs.get(job_id)

    def add(self, job: SiteJob) -> None:
        """Keep a job from now on."""
        self._jobs[job.stub.id] = job
        self._settled.pop(job.stub.id, None)

    def forget(self, job: SiteJob) -> None:
        """Drop a job that was never published, or that nobody here cares for any more."""
        if self._jobs.get(job.stub.id) is job:
            del self._jobs[job.stub.id]

    def settle(self, job: SiteJob) -> bool:
        """Drop a job whose end has been handed over; False when that was done before."""
        if self._jobs.pop(job.stub.id, None) is None:
            return False
        self._settled[job.stub.id] = None
        if len(self._settled) > _REMEMBERED:
            self._settled.popitem(last=False)
        return True

    def was_settled(self, job_id: str) -> bool:
        """Whether a notice about this job can only be one that crossed its settlement on the way."""
        return job_id in self._settled


def plaintext_of(payload: Payload | str, kind: str | None) -> tuple[str, str, int]:
    """Return the kind, the plaintext and its text length in UTF-16 units.

    Raises:
        ValueError: Text of no kind, or a payload of another kind.
        PayloadError: The payload has a lone surrogate.
    """
    if isinstance(payload, str):
        if kind is None:
            raise ValueError("a plaintext that is given as text needs a kind")
        return kind, payload, utf16_length(payload)
    if kind is not None and kind != payload.kind:
        raise ValueError(f"this is a payload of the kind {payload.kind}")
    return payload.kind, dump_payload(payload), payload.text_length


def make_stub(
    *,
    job_id: str,
    kind: str,
    owner: str,
    site_key_id: str,
    audience: Audience,
    purpose: str | None,
    text_length: int,
    deadline_at_ms: int,
) -> job_pb2.JobStub:
    """Return the public description of a job."""
    return job_pb2.JobStub(
        id=job_id,
        kind=kind,
        owner=owner,
        site=site_key_id,
        audience=AUDIENCES[audience],
        purpose=purpose,
        size_class=SIZE_CLASSES[size_class(text_length)],
        deadline_time=timestamp_of(deadline_at_ms),
    )
