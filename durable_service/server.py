"""Wires stores, principals, planes and streams behind a port. Nothing else knows all parts."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Self
from uuid import uuid4

import grpc.aio

from durable_service.admission import Admission
from durable_service.backlog_gauges import BacklogGauges
from durable_service.blob_collector import BlobCollector
from durable_service.certificates import Certificates, PrincipalAuthenticator
from durable_service.core.limits import ARTIFACT_BYTES
from durable_service.core.states import TaskState
from durable_service.durable_metrics import DurableMetrics
from durable_service.lease_news import is_record_keeping
from durable_service.open_tasks import OpenTasks
from durable_service.planes import (
    action_plane,
    admin_plane,
    approval_plane,
    record_plane,
    task_plane,
    worker_plane,
)
from durable_service.planes.action_calls import ActionCalls
from durable_service.planes.admin_calls import AdminCalls, ReplicaFacts
from durable_service.planes.admission_desk import AdmissionDesk
from durable_service.planes.gate import Gate, errors_told
from durable_service.planes.lease_calls import LeaseCalls
from durable_service.planes.parts import Parts
from durable_service.planes.record_calls import RecordCalls
from durable_service.planes.watches import Watches
from durable_service.principal_keys import PrincipalKeys
from durable_service.principals import Principals
from durable_service.principals_source import PrincipalsSource
from durable_service.retention_rounds import RetentionRounds
from durable_service.sessions.framing import DOMAIN
from durable_service.sessions.worker_calls import StreamCalls
from durable_service.sessions.worker_session import WorkerServices
from durable_service.store.base import TaskChange, TaskStore
from durable_service.store.writability import ChecksWrites
from durable_service.stores import Stores
from durable_service.streams import StreamSettings, WorkerStreams
from durable_service.sweeper import Sweeper
from durable_service.task_news import TaskNews
from durable_service.work_offers import WorkOffers
from sealwork.durable.v1 import (
    action_service_pb2_grpc,
    admin_service_pb2_grpc,
    approval_service_pb2_grpc,
    record_service_pb2_grpc,
    task_service_pb2_grpc,
    worker_service_pb2_grpc,
)
from service_common.background import Background
from service_common.call_interceptor import CallInterceptor
from service_common.call_metrics import CallMetrics
from service_common.clocks import Clock, SystemClock
from service_common.drain import Drain
from service_common.health import ServingState
from service_common.listeners import Listener, bind
from service_common.loop_lag import LoopLagMonitor
from service_common.method_table import (
    CHANNELZ_METHODS,
    HEALTH_METHODS,
    REFLECTION_METHODS,
    CallAuthenticator,
    MethodTable,
    ServicePolicy,
)
from service_common.metrics import Metrics
from service_common.readiness import Readiness
from service_common.request_verifier import RequestVerifier
from service_common.server import add_health, add_reflection, build_admin_server, build_server
from service_common.sessions.limits import SessionTimes
from service_common.sessions.session import SessionSetting

SERVICES = (
    task_plane.SERVICE,
    worker_plane.SERVICE,
    action_plane.SERVICE,
    approval_plane.SERVICE,
    record_plane.SERVICE,
    admin_plane.SERVICE,
)
SESSION_METHODS = frozenset({f"/{worker_plane.SERVICE}/Session"})
UPLOADS = frozenset({f"/{record_plane.SERVICE}/PutArtifact"})


@dataclass(frozen=True)
class ServerOptions:
    """How the service serves.

    Attributes:
        listeners: where; at least one.
        store_kind: what operators are told that the store is.
        admin_listener: where health, reflection and channelz are served, and nothing of any tenant.
        so_reuseport: let several processes share a port.
        retention_ms: no task is purged before it has been over for this long.
        purge_after_ms: when tasks are purged on their own, by how they ended; kept where it says nothing.
        measured: keep the gauges of what waits, which cost the store a look four times a minute.
    """

    listeners: Sequence[Listener]
    times: SessionTimes = field(default_factory=SessionTimes)
    instance: str = field(default_factory=lambda: f"durable-{uuid4().hex[:8]}")
    store_kind: str = "memory"
    artifact_bytes: int = ARTIFACT_BYTES
    retention_ms: int = 604_800_000
    purge_after_ms: Mapping[TaskState, int] = field(default_factory=dict)
    grace_ms: int = 30_000
    admin_listener: Listener | None = None
    so_reuseport: bool = False
    measured: bool = False


class DurableServer:
    """One durable service behind its listeners.

    Use as an async context manager, or call `start` and `stop`. The stores are their maker's to close.
    """

    def __init__(
        self,
        stores: Stores,
        source: PrincipalsSource,
        options: ServerOptions,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        metrics: Metrics | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        random = random or Random()  # noqa: S311 - spreads load, keeps no secret
        self.metrics = metrics or Metrics()
        self.state = ServingState(SERVICES)
        self.drain = Drain(self.clock, self.state, grace_ms=options.grace_ms)
        self.ports: list[int] = []
        self._options = options
        self._store = stores.tasks
        self._source = source
        self._background = Background()
        self._stream_work = Background()
        self._counts = DurableMetrics(self.metrics)
        self.watches = Watches(self.clock)
        self._news = TaskNews(stores.tasks)
        self._offers = WorkOffers(self.clock)
        self._gate = Gate(lambda: source.current)
        self._sweeper = Sweeper(stores.tasks, self.clock)
        self._collector = BlobCollector(stores.tasks, stores.blobs, self.clock)
        self._retention = RetentionRounds(
            stores.tasks,
            stores.blobs,
            self.clock,
            self.metrics,
            purge_after_ms=options.purge_after_ms,
            retention_ms=options.retention_ms,
        )
        self._parts = Parts(
            stores.tasks,
            stores.blobs,
            self._news,
            self._offers,
            self._gate,
            self.watches,
            self.clock,
            new_id=lambda: secrets.token_urlsafe(16),
            random=random,
            lease_ms=options.times.lease_ms,
            artifact_bytes=options.artifact_bytes,
            retention_ms=options.retention_ms,
            admission=AdmissionDesk(admission, self.clock),
            open_tasks=OpenTasks(stores.tasks),
        )
        self._leases = LeaseCalls(self._parts)
        self._actions = ActionCalls(self._parts)
        self._records = RecordCalls(self._parts)
        keys = PrincipalKeys(lambda: source.current)
        self._certificates = Certificates(lambda: source.current)
        self.streams = self._streams(keys, random)
        self._offers.on_due = self.streams.timer_due
        self.drain.register(self.streams.drain)
        self.drain.register(self.watches.drain)
        self._stop_hearing = [
            self._news.of_all(self._hear),
            source.listen(self._principals_changed),
        ]
        verifier = RequestVerifier(keys, _Nonces(stores.tasks), self.clock)
        self._servers = [self._build(PrincipalAuthenticator(self._certificates, verifier))]
        if options.admin_listener is not None:
            self._servers.append(self._build_admin())
        self._lag = LoopLagMonitor(self.clock, self.state)

    @property
    def address(self) -> str:
        """The first listener's address, with the port that was bound."""
        listener = self._options.listeners[0].address
        if not self.ports or not self.ports[0]:
            return listener
        return f"{listener.rpartition(':')[0]}:{self.ports[0]}"

    async def start(self) -> None:
        """Binds and serves.

        Raises:
            SettingsError: an address cannot be served.
        """
        for listener in self._options.listeners:
            self.ports.append(bind(self._servers[0], listener))
        if self._options.admin_listener is not None:
            bind(self._servers[1], self._options.admin_listener)
        for server in self._servers:
            await server.start()
        if self._parts.admission.asks:
            await self._parts.open_tasks.begin()
            self._background.run(self._parts.open_tasks.keep(self.clock))
        self._background.run(self._sweeper.run())
        self._background.run(self._collector.run())
        self._background.run(self._retention.run())
        if self._options.measured:
            self._background.run(BacklogGauges(self._store, self.clock, self.metrics).run())
        readiness = Readiness(self.clock, self.state, dict.fromkeys(SERVICES, self._store_answers))
        await readiness.refresh()
        self._background.run(readiness.run())
        self._lag.start()

    async def run_until_drained(self) -> None:
        """Serves until a drain begins and has been carried out."""
        await self.drain.run(*self._servers)

    async def stop(self) -> None:
        """Ends at once what is still served."""
        self._lag.stop()
        await self._background.cancel()
        for server in self._servers:
            await server.stop(0)
        for stop in self._stop_hearing:
            stop()
        self._stop_hearing = []
        self._news.close()
        self._offers.close()
        await self._stream_work.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _hear(self, change: TaskChange) -> None:
        self._counts.note(change)
        if is_record_keeping(change):
            return
        self._parts.open_tasks.note(change)
        self._sweeper.note(change)
        # Verdicts before hints: a worker learns that it lost a task before it hears that one can be claimed.
        self.streams.hear(change)
        self._offers.note(change)

    def _principals_changed(self, old: Principals, new: Principals) -> None:
        self.streams.principals_changed(old, new)
        self.watches.principals_changed(old, new)

    def _streams(self, keys: PrincipalKeys, random: Random) -> WorkerStreams:
        settings = StreamSettings(
            session=SessionSetting(
                times=self._options.times,
                clock=self.clock,
                random=random,
            ),
            instance=self._options.instance,
            refuse_if_draining=self.drain.refuse_if_draining,
            on_open=self._counts.stream_opened,
            on_end=self._counts.stream_ended,
        )
        calls = StreamCalls(self._gate, self._leases, self._actions, self._records)
        services = WorkerServices(
            self._store,
            self._gate,
            self._leases,
            calls,
            self._offers,
            self._stream_work,
            self._parts.admission,
        )
        return WorkerStreams(settings, keys, services, self._certificates)

    def _build(self, authenticator: CallAuthenticator) -> grpc.aio.Server:
        table = MethodTable(
            services=dict.fromkeys(SERVICES, ServicePolicy(DOMAIN, authenticator)),
            unauthenticated=HEALTH_METHODS | REFLECTION_METHODS,
            challenged=SESSION_METHODS,
            uploads=UPLOADS,
            default_domain=DOMAIN,
        )
        interceptor = CallInterceptor(table, CallMetrics(self.metrics), self.clock)
        server = build_server(interceptor, so_reuseport=self._options.so_reuseport)
        parts = self._parts
        task_service_pb2_grpc.add_TaskServiceServicer_to_server(task_plane.TaskPlane(parts), server)
        worker_service_pb2_grpc.add_WorkerServiceServicer_to_server(
            worker_plane.WorkerPlane(parts, self._leases, self.streams.serve), server
        )
        action_service_pb2_grpc.add_ActionServiceServicer_to_server(
            action_plane.ActionPlane(parts, self._actions), server
        )
        approval_service_pb2_grpc.add_ApprovalServiceServicer_to_server(
            approval_plane.ApprovalPlane(parts), server
        )
        record_service_pb2_grpc.add_RecordServiceServicer_to_server(
            record_plane.RecordPlane(parts, self._records), server
        )
        admin_service_pb2_grpc.add_DurableAdminServiceServicer_to_server(
            admin_plane.AdminPlane(parts, AdminCalls(parts, self._facts())), server
        )
        add_health(server, self.state)
        add_reflection(server, SERVICES)
        return server

    def _build_admin(self) -> grpc.aio.Server:
        table = MethodTable(
            services={},
            unauthenticated=HEALTH_METHODS | REFLECTION_METHODS | CHANNELZ_METHODS,
            default_domain=DOMAIN,
        )
        # The metrics of calls are counted once a process, under the names of the main listener.
        interceptor = CallInterceptor(table, CallMetrics(Metrics()), self.clock)
        return build_admin_server(interceptor, self.state, ())

    def _facts(self) -> ReplicaFacts:
        started = self.clock.monotonic()
        return ReplicaFacts(
            self._options.instance,
            self._options.store_kind,
            uptime_ms=lambda: int((self.clock.monotonic() - started) * 1000),
            sessions=lambda: len(self.streams.sessions),
        )

    async def _store_answers(self) -> bool:
        await self._store.next_due_ms()
        if isinstance(self._store, ChecksWrites):
            await self._store.check_writes()
        return True


class _Nonces:
    """The store's nonces, with an error that a caller may see when it is away."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        with errors_told():
            return await self._store.use_nonce(caller, nonce, ttl_ms)
