"""From an opened stream of a worker to a served session and its clean-up."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import grpc
import grpc.aio

from durable_service.admission import facts_of
from durable_service.certificates import Certificates
from durable_service.core.model import TaskRecord
from durable_service.lease_news import WakePush, lease_push, timer_push, wake_push
from durable_service.planes.gate import errors_told
from durable_service.planes.watches import changed_credential
from durable_service.principal_keys import PrincipalKeys
from durable_service.principals import Principals
from durable_service.sessions.framing import WorkerFraming
from durable_service.sessions.worker_session import WorkerServices, WorkerSession, check_hello
from durable_service.store.base import TaskChange
from sealwork.durable.v1 import worker_service_pb2
from sealwork.session.v1 import session_pb2
from service_common.errors import ServiceError
from service_common.sessions.endings import EndReason
from service_common.sessions.handshake import Greeted, Handshake
from service_common.sessions.limits import welcome
from service_common.sessions.registry import SessionRegistry
from service_common.sessions.session import SessionSetting

_METHOD = "/sealwork.durable.v1.WorkerService/Session"

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class StreamSettings:
    """What streams need of the process.

    Attributes:
        refuse_if_draining: raises when no new stream is welcome.
        on_open: told of an accepted stream.
        on_end: told how an accepted stream ended.
    """

    session: SessionSetting
    instance: str
    refuse_if_draining: Callable[[], None]
    on_open: Callable[[], None]
    on_end: Callable[[EndReason], None]


class WorkerStreams:
    """Serves streams of workers; a newer one of the same worker wins."""

    def __init__(
        self,
        settings: StreamSettings,
        keys: PrincipalKeys,
        services: WorkerServices,
        certificates: Certificates,
    ) -> None:
        self._settings = settings
        self._services = services
        self._framing = WorkerFraming()
        self.sessions: SessionRegistry[WorkerSession] = SessionRegistry(
            settings.session.clock, most=1, superseded=_superseded, conflict=_conflict
        )
        self._handshake: Handshake[worker_service_pb2.WorkerHello] = Handshake(
            _METHOD,
            worker_service_pb2.WorkerHello,
            lambda hello: hello.principal_id,
            keys,
            clock=settings.session.clock,
            hello_ms=settings.session.times.hello_ms,
            frame_bytes=settings.session.times.frame_bytes,
            random_bytes=os.urandom,
        )
        self._handshake.certified = certificates.caller

    async def serve(self, context: Context) -> None:
        """Serves one stream to its end."""
        with errors_told():
            await self._serve_one(context)

    async def _serve_one(self, context: Context) -> None:
        self._settings.refuse_if_draining()
        # Before the challenge, so before the worker can have drawn up its inventory.
        begun_ms = await self._services.store.now_ms()
        greeted = await self._handshake.greet(
            context, lambda challenge: self._framing.frame(1, 0, [self._framing.challenge(challenge)])
        )
        # Again: a drain that began meanwhile has asked all streams to move and missed this one.
        self._settings.refuse_if_draining()
        check_hello(greeted.hello)
        session = WorkerSession(
            context, greeted.hello, str(uuid4()), self._services, self._settings.session, begun_ms
        )
        session.follow_greeting(greeted.seq)
        # Admitted before the first await: two hellos of one worker at once must see each other.
        self.sessions.admit(session.holder_name, greeted.hello.process_id, session)
        self._settings.on_open()
        try:
            await self._serve(session, greeted)
            await session.finish()
        finally:
            session.closed()

    def hear(self, change: TaskChange) -> None:
        """Tells the workers that a change concerns."""
        record = change.after
        if record is None:
            return
        lease = lease_push(change)
        if lease is not None:
            for session in self.sessions.of(lease.holder.worker_id):
                session.push_lease(record.key.task_id, lease)
        wake = wake_push(change)
        if wake is not None:
            self._wake(record, wake)

    def timer_due(self, record: TaskRecord) -> None:
        """Tells the worker that yielded a task that its pause is over."""
        wake = timer_push(record)
        if wake is not None:
            self._wake(record, wake)

    def _wake(self, record: TaskRecord, wake: WakePush) -> None:
        # In order with the other news, unless there is somebody who has to be asked.
        if not self._services.admission.asks:
            self._push_wake(record, wake)
        elif any(True for _ in self.sessions.of(wake.worker)):
            self._services.background.run(self._wake_if_admitted(record, wake))

    async def _wake_if_admitted(self, record: TaskRecord, wake: WakePush) -> None:
        if await self._services.admission.admits_waking(facts_of(record)):
            self._push_wake(record, wake)

    def _push_wake(self, record: TaskRecord, wake: WakePush) -> None:
        for session in self.sessions.of(wake.worker):
            session.push_wake(record, wake)

    def principals_changed(self, old: Principals, new: Principals) -> None:
        """Ends the streams of principals that are not what they were."""
        for session in self.sessions:
            error = changed_credential(old, new, session.principal_id)
            if error is not None:
                session.end(EndReason.REFUSED, error)

    async def drain(self) -> None:
        """Asks every stream to move; returns when all have ended."""
        streams = tuple(self.sessions)
        for stream in streams:
            stream.ask_to_move(session_pb2.DRAIN_REASON_SERVER_SHUTDOWN)
        for stream in streams:
            await stream.wait_ended()

    async def _serve(self, session: WorkerSession, greeted: Greeted[worker_service_pb2.WorkerHello]) -> None:
        async def open_() -> None:
            await session.arrive(greeted.hello, self._welcome(session))
            await session.receive_rest(greeted.seq, greeted.items)

        try:
            await session.serve(open_())
        finally:
            self.sessions.remove(session.holder_name, session)
            session.depart()
            self._settings.on_end(session.end_reason)

    def _welcome(self, session: WorkerSession) -> session_pb2.Welcome:
        return welcome(
            session_id=session.session_id,
            epoch=session.epoch,
            times=self._settings.session.times,
            capabilities=frozenset(),
            now_ms=self._settings.session.clock.now_ms(),
            instance=self._settings.instance,
        )


def _superseded() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.ABORTED,
        "SESSION_SUPERSEDED",
        "a newer stream of this worker has taken over; look for a second process with this worker id",
        retry_after_ms=30_000,
    )


def _conflict() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "WORKER_ID_CONFLICT",
        "two live processes of this worker keep replacing each other; give each its own worker id",
    )
