"""A relay to test against: in this process on a clock that stands still, or as a process of its own."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from relay_service.client.keys import Keys
from relay_service.core.identity import PublicIdentity
from relay_service.core.projection import Consent, ProjectedDevice, ProjectedSite, Projection, Roster
from relay_service.projection import ProjectionSource
from relay_service.projection_file import format_projection
from relay_service.server import RelayServer, ServerOptions
from relay_service.store.memory import MemoryRoutingStore
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from service_common.clocks import ManualClock
from service_common.listeners import Listener
from service_common.sessions.limits import SessionTimes
from tests.harness.processes import RunningProcess, running
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import KIND, RawDaemon, RawOperator, RawSite, RawStream

# Serves a relay, or several that share a store, the way a test wants it.
Serve: TypeAlias = Callable[..., AbstractAsyncContextManager["RelayUnderTest"]]
REPOSITORY = Path(__file__).resolve().parents[2]
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
READY = r'"address":"(127\.0\.0\.1:\d+)"'


def keys_of(name: str) -> Keys:
    """The keys of a party, always the same ones."""
    seed = hashlib.sha512(name.encode()).digest()
    return Keys(seed[:32], seed[32:], 0)


# runner-1 and runner-2 are alice's, runner-b is bob's. Both people consent to both sites, and bob's device
# takes alice's team jobs.
PROJECTION = Projection(
    sites=tuple(ProjectedSite(name, keys_of(name).public) for name in ("demo", "other")),
    consents=tuple(Consent(owner, site) for owner in ("alice", "bob") for site in ("demo", "other")),
    devices=(
        ProjectedDevice("alice", "runner-1", keys_of("runner-1").public),
        ProjectedDevice("alice", "runner-2", keys_of("runner-2").public),
        ProjectedDevice("bob", "runner-b", keys_of("runner-b").public),
    ),
    rosters=(Roster("friends", "bob", ("alice",)),),
)


def without_device(runner_id: str, projection: Projection = PROJECTION) -> Projection:
    devices = tuple(device for device in projection.devices if device.runner_id != runner_id)
    return replace(projection, devices=devices)


def with_device(device: ProjectedDevice, projection: Projection = PROJECTION) -> Projection:
    """The projection with this device in place of the one of its name."""
    return replace(projection, devices=(*without_device(device.runner_id, projection).devices, device))


def timestamp(at_ms: int) -> Timestamp:
    return Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


@dataclass
class RelayUnderTest:
    """A relay in this process, with the parties of `PROJECTION`.

    Attributes:
        channel: to the relay; parties share it unless they are given another.
    """

    server: RelayServer
    store: MemoryRoutingStore
    source: ProjectionSource
    clock: ManualClock
    channel: Any

    @property
    def servers(self) -> Sequence[RelayServer]:
        """Every relay there is."""
        return [self.server]

    def server_of(self, plane: str) -> RelayServer:
        """The relay that the parties of a plane, daemon or site, are connected to."""
        return self.server

    def who_waits(self) -> Sequence[Any]:
        """Streams and calls of devices that wait for work."""
        return self.server_of("daemon").relay.dispatch._waiting.everyone()

    def daemon(self, name: str = "runner-1", *, keys: Keys | None = None, channel: Any = None) -> RawDaemon:
        return RawDaemon(channel or self.channel, name, keys or keys_of(name), self.clock.now_ms)

    def site(self, name: str = "demo", *, keys: Keys | None = None, channel: Any = None) -> RawSite:
        return RawSite(channel or self.channel, name, keys or keys_of(name), self.clock.now_ms)

    def operator(self, name: str = "operator") -> RawOperator:
        return RawOperator(self.channel, name, keys_of(name), self.clock.now_ms)

    async def pass_time(self, ms: int, *, alive: Sequence[RawStream] = (), step_ms: int = 10_000) -> None:
        """Lets time pass, with the streams that are `alive` saying so all along."""
        while ms > 0:
            step = min(ms, step_ms)
            await self.clock.advance_async(step)
            for stream in alive:
                await stream.settle()
            ms -= step

    async def elapse(self, ms: int) -> None:
        """Lets time pass for peers that read.

        The clock of a test leaps, and the transport takes the time of this machine: a write that has begun
        is let through first, or it would be taken for one that the peer holds up.
        """
        await self._written()
        while ms > 0:
            step = min(ms, 5_000)
            await self.clock.advance_async(step)
            await self._written()
            ms -= step

    async def _written(self) -> None:
        def idle() -> bool:
            sessions = [
                each for server in self.servers for each in (*server.relay.daemons, *server.relay.sites)
            ]
            return all(session.outbound._writer is None for session in sessions)

        await eventually(idle, describe="all that is said to be written")

    async def told(self, stream: RawStream, arm: str) -> Any:
        """Takes the next item with that arm, which time has made due."""
        return await stream.next(arm)

    async def ended(self, plane: str, end: str, count: int = 1) -> None:
        """Waits until so many streams of a plane have been recorded to have ended like that."""
        await eventually(
            lambda: self.ends(plane).get(end, 0) == count, describe=lambda: f"{end}: {self.ends(plane)}"
        )

    def ends(self, plane: str) -> dict[str, int]:
        """How streams of a plane have ended so far, as the metrics say."""
        names = ("goodbye", "lost", "silent", "slow", "superseded", "drained", "refused")
        metrics = self.server_of(plane).metrics
        counts = {end: int(metrics.value("relay_streams_ended_total", plane=plane, end=end)) for end in names}
        return {end: count for end, count in counts.items() if count}

    def open_streams(self, plane: str) -> int:
        return int(self.server_of(plane).metrics.value("relay_streams_open", plane=plane))

    async def state(self, job_id: str, site_id: str = "demo") -> str | None:
        job = await self.store.job(site_id, job_id)
        return None if job is None else job.state.value

    async def lease_of(self, job_id: str, site_id: str = "demo") -> job_pb2.LeaseRef:
        """The lease under which a job is held, as its site reads it."""
        answer = await self.site(site_id).call("GetJob", site_plane_pb2.GetJobRequest(job_id=job_id))
        return job_pb2.LeaseRef(job_id=job_id, lease_id=answer.lease_id)

    async def becomes(self, job_id: str, state: str | None) -> None:
        """Waits until a job of site demo is in that state; None when it is forgotten."""

        async def there() -> bool:
            return await self.state(job_id) == state

        await eventually(there, describe=f"{job_id} to be {state}")

    def drain(self) -> asyncio.Task[None]:
        """Carries out what a shutdown does to streams."""
        return asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await asyncio.gather(*(server.relay.drain() for server in self.servers))

    async def dump(self) -> str:
        """Everything the store holds that a caller could have changed, as text."""
        notices = [await self.store.notices(site.site_id, 0, 10_000) for site in self.source.current.sites]
        devices = [device.runner_id for device in self.source.current.devices]
        held = [await self.store.held(runner_id) for runner_id in devices]
        return repr((await self.store.jobs(), notices, held))

    # -- the course of a job ------------------------------------------------------------

    def stub(self, job_id: str, **fields: Any) -> job_pb2.JobStub:
        """A stub of alice's team job for site demo, a day long."""
        given: dict[str, Any] = {
            "id": job_id,
            "kind": KIND,
            "owner": "alice",
            "site": keys_of("demo").key_id,
            "audience": job_pb2.AUDIENCE_TEAM,
            "size_class": job_pb2.SIZE_CLASS_SMALL,
            "deadline_time": timestamp(self.clock.now_ms() + DAY_MS),
        }
        return job_pb2.JobStub(**(given | fields))

    def payload(self, runner_id: str = "runner-1", body: bytes = b"sealed payload", **fields: Any) -> Any:
        """A payload from site demo; only its header means anything to the relay."""
        return self._envelope(keys_of(runner_id), keys_of("demo"), job_pb2.DIRECTION_PAYLOAD, body, fields)

    def result(self, runner_id: str = "runner-1", body: bytes = b"sealed result", **fields: Any) -> Any:
        """A result for site demo."""
        return self._envelope(keys_of("demo"), keys_of(runner_id), job_pb2.DIRECTION_RESULT, body, fields)

    async def enqueue(self, *job_ids: str, **fields: Any) -> None:
        """Publishes jobs of site demo by unary calls."""
        for job_id in job_ids:
            request = site_plane_pb2.EnqueueJobRequest(stub=self.stub(job_id, **fields))
            await self.site().call("EnqueueJob", request)

    async def seal(self, lease: job_pb2.LeaseRef, runner_id: str = "runner-1", **fields: Any) -> None:
        """Seals by a unary call."""
        request = site_plane_pb2.SealPayloadRequest(
            job_id=lease.job_id, lease_id=lease.lease_id, envelope=self.payload(runner_id, **fields)
        )
        await self.site().call("SealPayload", request)

    async def cancel(self, job_id: str) -> bool:
        """Withdraws a job of site demo by a unary call."""
        answer = await self.site().call("CancelJob", site_plane_pb2.CancelJobRequest(job_id=job_id))
        return bool(answer.cancelled)

    def _envelope(self, to: Keys, by: Keys, direction: Any, body: bytes, fields: dict[str, Any]) -> Any:
        given: dict[str, Any] = {
            "ciphertext": body,
            "recipient_key_id": to.key_id,
            "sender_key_id": by.key_id,
            "direction": direction,
            "deadline_time": timestamp(self.clock.now_ms() + DAY_MS),
        }
        return job_pb2.SealedEnvelope(**(given | fields))


def ref(granted: Any) -> job_pb2.LeaseRef:
    """The lease of a grant as its holder names it."""
    return job_pb2.LeaseRef(job_id=granted.stub.id, lease_id=granted.lease.id)


@asynccontextmanager
async def serving(
    times: SessionTimes | None = None,
    *,
    projection: Projection = PROJECTION,
    address: str = "127.0.0.1:0",
    clock: ManualClock | None = None,
    **options: Any,
) -> AsyncIterator[RelayUnderTest]:
    """Serves a relay on the memory store; its time passes only when a test lets it."""
    clock = clock or ManualClock(START_MS)
    numbers = iter(range(1, 1_000_000))
    store = MemoryRoutingStore(clock.now_ms, lambda: f"lease-{next(numbers)}")
    source = ProjectionSource(projection)
    operators: dict[str, PublicIdentity] = {"operator": keys_of("operator").public}
    given = ServerOptions(
        [Listener(address)], times=times or SessionTimes(), instance="relay-test", operators=operators
    )
    server = RelayServer(store, source, replace(given, **options), clock=clock, random=Random(7))
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        yield RelayUnderTest(server, store, source, clock, channel)


@asynccontextmanager
async def relay_process(
    folder: Path,
    *flags: str,
    projection: Projection = PROJECTION,
    python: Sequence[str] = ("-m", "relay_service"),
) -> AsyncIterator[tuple[RunningProcess, str]]:
    """Runs `relay-service serve --dev` as a process of its own, and yields it with its address.

    Args:
        flags: more options of `serve`.
        python: what Python runs, and its own options before that.
    """
    path = folder / "projection.json"
    await asyncio.to_thread(path.write_text, format_projection(projection), "utf-8")
    argv = [sys.executable, *python, "serve", "--dev", "--listen", "127.0.0.1:0", "--log-format", "json"]
    argv += ["--projection", str(path), *flags]
    search = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'protos/gen/python'}"}
    async with running(argv, env=search, cwd=folder, ready=READY) as process:
        assert process.ready is not None
        yield process, process.ready[1]
