"""A device against a relay that the test plays by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from relay_service.client import Daemon
from relay_service.client.daemon_config import Limits
from relay_service.client.daemon_jobs import JobContext
from relay_service.client.envelope import open_envelope, seal
from relay_service.client.keys import Keys
from relay_service.client.outcomes import OkOutcome, Outcome, SealedOutcome, parse_outcome
from relay_service.client.payloads import GeneratePayload, dump_payload
from relay_service.client.wire import envelope_from_proto, envelope_to_proto
from relay_service.core.model import Capability
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.clocks import ManualClock
from tests.harness.waiting import eventually
from tests.relay_service.client.real_relay import DEVICE_KEYS, GENERATE, SITE_KEYS
from tests.service_common.scripted_server import (
    Plane,
    ScriptedServer,
    ScriptedStream,
    duration,
    scripted_server,
)

PLANE = Plane(
    "sealwork.relay.v1.DaemonPlaneService",
    daemon_plane_pb2.DaemonPlaneServiceSessionRequest,
    daemon_plane_pb2.DaemonPlaneServiceSessionResponse,
    daemon_plane_pb2.DaemonServerItem,
    daemon_plane_pb2.DaemonHello,
)
SERVICE = "/sealwork.relay.v1.DaemonPlaneService/"
START_MS = 1_700_000_000_000
FAR_MS = 4_000_000_000_000
# Any: dictionaries are taken for messages, too.
ServerItem: Any = daemon_plane_pb2.DaemonServerItem


@dataclass
class Work:
    """A handler that a test holds in its hand."""

    started: list[JobContext] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Outcome | SealedOutcome = field(default_factory=lambda: OkOutcome("an answer"))

    async def __call__(self, context: JobContext) -> Outcome | SealedOutcome:
        self.started.append(context)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped.append(context.job_id)
            raise
        return self.outcome


@dataclass
class PlayedRelay:
    """A device that is connected, and the relay's end of its stream."""

    server: ScriptedServer
    stream: ScriptedStream
    daemon: Daemon
    running: "asyncio.Future[None]"
    hello: daemon_plane_pb2.DaemonHello
    clock: ManualClock
    work: Work
    calls: int = 0

    async def call(self) -> daemon_plane_pb2.DaemonCall:
        """The next call of the device."""
        call: daemon_plane_pb2.DaemonCall = await self.stream.next_item("call", after=self.calls)
        self.calls += 1
        return call

    async def reply(self, call: daemon_plane_pb2.DaemonCall, **outcome: Any) -> None:
        await self.stream.send(ServerItem(reply=daemon_plane_pb2.DaemonReply(id=call.id, **outcome)))

    async def grant(self, job_id: str, *, lease: str = "l-1", seconds: float = 60, **stub: Any) -> None:
        await self.stream.send(ServerItem(granted=granted(job_id, lease=lease, seconds=seconds, **stub)))

    async def payload(self, job_id: str, *, lease: str = "l-1", **sealed: Any) -> None:
        ready = daemon_plane_pb2.PayloadReady(
            lease=lease_ref(job_id, lease), envelope=payload(job_id, **sealed)
        )
        await self.stream.send(ServerItem(payload_ready=ready))

    async def start(self, job_id: str, *, lease: str = "l-1", **options: Any) -> None:
        """Grants a job and has it begin."""
        begun = len(self.work.started)
        await self.grant(job_id, lease=lease, **options)
        await self.payload(job_id, lease=lease)
        await self.begun(begun + 1)

    async def begun(self, count: int) -> None:
        """Waits until that many jobs have begun."""
        await eventually(lambda: len(self.work.started) == count, 10, f"the begin of {count} jobs")

    async def advance_until(self, predicate: Callable[[], object], *, step_ms: int = 500) -> None:
        """Lets time pass until something is true."""

        def passed() -> bool:
            self.clock.advance(step_ms)
            return bool(predicate())

        await eventually(passed)

    async def reaches(self, phase: str, lease: str = "l-1") -> None:
        """Waits until a job that is held has come so far."""
        held = self.daemon._desk.held
        await eventually(lambda: (job := held.get(lease)) is not None and job.phase == phase, 10, phase)

    async def verdict(self, job_id: str, state: Any, *, lease: str = "l-1", seconds: float = 0) -> None:
        verdict = job_pb2.LeaseVerdict(
            lease=lease_ref(job_id, lease), state=state, remaining=duration(seconds)
        )
        await self.stream.send(ServerItem(verdicts=daemon_plane_pb2.Verdicts(verdicts=[verdict])))

    async def completed(self) -> daemon_plane_pb2.CompleteJobRequest:
        """The next call, which has to be a result; answers it."""
        call = await self.call()
        assert call.WhichOneof("request") == "complete_job"
        await self.reply(call, complete_job=daemon_plane_pb2.CompleteJobResponse(accepted=True))
        return call.complete_job

    async def released(self) -> daemon_plane_pb2.ReleaseLeasesRequest:
        """The next call, which has to give leases back; answers it."""
        call = await self.call()
        assert call.WhichOneof("request") == "release_leases"
        await self.reply(call, release_leases=daemon_plane_pb2.ReleaseLeasesResponse())
        return call.release_leases


@asynccontextmanager
async def played_relay(
    work: Work | None = None,
    *,
    matrix: tuple[Capability, ...] = (GENERATE,),
    unary: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    verdicts: list[job_pb2.LeaseVerdict] | None = None,
    clock: ManualClock | None = None,
    run_limits: Limits | None = None,
    **options: Any,
) -> AsyncIterator[PlayedRelay]:
    work = work or Work()
    clock = clock or ManualClock(START_MS)
    async with scripted_server(PLANE) as server:
        server.unary.update({SERVICE + name: answer for name, answer in (unary or {}).items()})
        daemon = Daemon(
            server.address,
            **{
                "runner_id": "desk",
                "keys": DEVICE_KEYS,
                "pins": [SITE_KEYS.public],
                "matrix": matrix,
                "handlers": {"llm.generate": work},
                "owner": "alice",
                "limits": run_limits,
                "clock": clock,
                "random": Random(3),
                **options,
            },
        )
        running = asyncio.ensure_future(daemon.run())
        stream = await server.stream()
        more = [ServerItem(verdicts=daemon_plane_pb2.Verdicts(verdicts=verdicts))] if verdicts else []
        hello = await stream.welcome(*more, **(limits or {}))
        await daemon.opened()
        try:
            yield PlayedRelay(server, stream, daemon, running, hello, clock, work)
        finally:
            for each in server.streams:
                each.over.set()
            await end(daemon, running, clock)


async def end(daemon: Daemon, running: "asyncio.Future[None]", clock: ManualClock) -> None:
    """Stops a device whose relay may not answer any more."""
    work = asyncio.ensure_future(daemon.stop(grace_seconds=0))
    while not (work.done() and running.done()):
        clock.advance(1_000)
        await asyncio.wait((work, running), timeout=0.01)
    await work
    if not running.cancelled():
        running.exception()


def lease_ref(job_id: str, lease: str = "l-1") -> job_pb2.LeaseRef:
    return job_pb2.LeaseRef(job_id=job_id, lease_id=lease)


def granted(
    job_id: str,
    *,
    lease: str = "l-1",
    seconds: float = 60,
    kind: str = "llm.generate",
    owner: str = "alice",
    site: Keys = SITE_KEYS,
    audience: Any = job_pb2.AUDIENCE_TEAM,
    size_class: Any = job_pb2.SIZE_CLASS_SMALL,
    deadline_at_ms: int = START_MS + 900_000,
    grant: job_pb2.SignedGrant | None = None,
) -> daemon_plane_pb2.Granted:
    stub = job_pb2.JobStub(
        id=job_id, kind=kind, owner=owner, site=site.key_id, audience=audience, size_class=size_class
    )
    stub.deadline_time.FromMilliseconds(deadline_at_ms)
    held = job_pb2.Lease(id=lease, remaining=duration(seconds))
    return daemon_plane_pb2.Granted(stub=stub, lease=held, grant=grant)


def payload(
    job_id: str,
    prompt: str = "hello",
    *,
    plaintext: str | None = None,
    site: Keys = SITE_KEYS,
    device: Keys = DEVICE_KEYS,
    deadline_at_ms: int = FAR_MS,
) -> job_pb2.SealedEnvelope:
    text = dump_payload(GeneratePayload(prompt)) if plaintext is None else plaintext
    return envelope_to_proto(
        seal(
            keys=site,
            recipient=device.public,
            job_id=job_id,
            direction="payload",
            plaintext=text,
            deadline_at_ms=deadline_at_ms,
        )
    )


def opened_result(request: daemon_plane_pb2.CompleteJobRequest) -> SealedOutcome:
    """What the site finds in a result."""
    envelope = envelope_from_proto(request.envelope)
    assert envelope is not None
    text = open_envelope(
        envelope,
        keys=SITE_KEYS,
        sender=DEVICE_KEYS.public,
        job_id=request.lease.job_id,
        direction="result",
        now_ms=START_MS,
    )
    return parse_outcome(text)
