"""The operator's decisions over the wire: convert, call, convert.

`ChangeProjection` makes single changes where the projection is kept, so that operators at work at the same
time need no read, no expected revision and no second try, and the trail says what each of them wanted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import grpc
import grpc.aio

from relay_service.core.projection import Projection
from relay_service.pairing_facts import PendingPairing
from relay_service.planes.convert import timestamp_of
from relay_service.planes.pairing_calls import PLATFORMS
from relay_service.planes.projection_changes import change_of
from relay_service.planes.projection_messages import projection_from_proto, projection_to_proto, unsound
from relay_service.planes.validation import Checks
from relay_service.projection_edits import EditError
from relay_service.projection_file import ProjectionError
from relay_service.projection_keeper import Kept, ProjectionConflictError, ProjectionReadOnlyError
from sealwork.relay.v1 import control_plane_pb2, control_plane_pb2_grpc
from service_common.caller_identity import current_caller
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.drain import draining_error
from service_common.errors import ServiceError, invalid_argument

SERVICE = "sealwork.relay.v1.ControlPlaneService"

_SIGN_OF_LIFE_SECONDS = 15.0

Context = grpc.aio.ServicerContext[Any, Any]
Listener = Callable[[Projection, Projection], object]


class Source(Protocol):
    """Has the projection in force."""

    @property
    def current(self) -> Projection:
        """The projection in force."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener(old, new)` with every change; the answer ends that."""


class Keeper(Protocol):
    """Carries out decisions."""

    async def change(
        self, actor: str, change: Callable[[Projection], Any], *, expected_revision: int | None = None
    ) -> Kept:
        """Makes one change on top of whatever is in force."""

    async def replace(self, actor: str, projection: Projection, expected_revision: int) -> Kept:
        """Puts a whole projection in force in place of the one of that revision."""


class Desk(Protocol):
    """Where devices wait to be paired."""

    async def pending(self) -> Sequence[PendingPairing]:
        """Devices that wait for a decision."""

    async def approve(self, user_code: str, owner: str, actor: str) -> str:
        """Makes the device that shows this code a device of `owner`; its runner id."""

    async def deny(self, user_code: str, actor: str) -> None:
        """Turns the device away that shows this code."""


class ControlPlane(control_plane_pb2_grpc.ControlPlaneServiceServicer):
    """Serves the operator.

    Args:
        leaving: Set when the relay begins to shut down.
    """

    def __init__(
        self, source: Source, keeper: Keeper, desk: Desk, clock: Clock, leaving: asyncio.Event
    ) -> None:
        self._source = source
        self._keeper = keeper
        self._desk = desk
        self._clock = clock
        self._leaving = leaving

    async def GetProjection(
        self, request: control_plane_pb2.GetProjectionRequest, context: Context
    ) -> control_plane_pb2.GetProjectionResponse:
        """The projection in force."""
        return control_plane_pb2.GetProjectionResponse(projection=await self._message())

    async def ReplaceProjection(
        self, request: control_plane_pb2.ReplaceProjectionRequest, context: Context
    ) -> control_plane_pb2.ReplaceProjectionResponse:
        """A whole projection."""
        projection = await asyncio.to_thread(
            projection_from_proto, request.projection, "projection", self._source.current
        )
        with _refusals("projection"):
            kept = await self._keeper.replace(current_caller(), projection, request.expected_revision)
        return control_plane_pb2.ReplaceProjectionResponse(revision=kept.revision)

    async def ChangeProjection(
        self, request: control_plane_pb2.ChangeProjectionRequest, context: Context
    ) -> control_plane_pb2.ChangeProjectionResponse:
        """One change."""
        name, change = change_of(request)
        expected = request.expected_revision if request.HasField("expected_revision") else None
        with _refusals(name):
            kept = await self._keeper.change(current_caller(), change, expected_revision=expected)
        return control_plane_pb2.ChangeProjectionResponse(
            revision=kept.revision, summary=kept.summary, changed=kept.changed
        )

    async def WatchProjection(
        self, request: control_plane_pb2.WatchProjectionRequest, context: Context
    ) -> AsyncIterator[control_plane_pb2.WatchProjectionResponse]:
        """The projection now, with each change, and every 15 s."""
        news = asyncio.Event()
        stop_listening = self._source.listen(lambda _old, _new: news.set())
        try:
            while not self._leaving.is_set():
                news.clear()
                yield control_plane_pb2.WatchProjectionResponse(projection=await self._message())
                with suppress(TimeoutError):
                    await within(self._clock, _SIGN_OF_LIFE_SECONDS, _either(news, self._leaving))
        finally:
            stop_listening()
        raise draining_error()

    async def ListPairings(
        self, request: control_plane_pb2.ListPairingsRequest, context: Context
    ) -> control_plane_pb2.ListPairingsResponse:
        """Devices that wait for a decision."""
        pending = await self._desk.pending()
        return control_plane_pb2.ListPairingsResponse(pairings=map(_pairing_to_proto, pending))

    async def ApprovePairing(
        self, request: control_plane_pb2.ApprovePairingRequest, context: Context
    ) -> control_plane_pb2.ApprovePairingResponse:
        """Makes a device somebody's."""
        checks = Checks()
        checks.identifier("user_code", request.user_code)
        checks.identifier("owner", request.owner)
        checks.raise_faults()
        with _refusals("owner"):
            runner_id = await self._desk.approve(request.user_code, request.owner, current_caller())
        return control_plane_pb2.ApprovePairingResponse(runner_id=runner_id)

    async def DenyPairing(
        self, request: control_plane_pb2.DenyPairingRequest, context: Context
    ) -> control_plane_pb2.DenyPairingResponse:
        """Turns a device away."""
        checks = Checks()
        checks.identifier("user_code", request.user_code)
        checks.raise_faults()
        await self._desk.deny(request.user_code, current_caller())
        return control_plane_pb2.DenyPairingResponse()

    async def _message(self) -> control_plane_pb2.Projection:
        # Off the loop: a large projection takes long, and heartbeats are waiting there.
        return await asyncio.to_thread(projection_to_proto, self._source.current)


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    """Returns when one of the two is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


@contextmanager
def _refusals(field: str) -> Iterator[None]:
    """Turns the keeper's words into those of the wire.

    Args:
        field: Of the request, which answers for a projection that would not be sound.
    """
    try:
        yield
    except EditError as error:
        raise _precondition("PROJECTION_CHANGE_REFUSED", str(error)) from None
    except ProjectionReadOnlyError as error:
        raise _precondition("PROJECTION_READ_ONLY", str(error)) from None
    except ProjectionConflictError as error:
        raise _conflict(error.revision) from None
    except ProjectionError as error:
        raise invalid_argument(unsound(error, field)) from None


def _precondition(reason: str, message: str) -> ServiceError:
    return ServiceError(grpc.StatusCode.FAILED_PRECONDITION, reason, message)


def _conflict(revision: int) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.ABORTED,
        "PROJECTION_CONFLICT",
        f"revision {revision} is in force, another than the change was made from; read it and apply the "
        "change again",
        metadata={"revision": str(revision)},
    )


def _pairing_to_proto(pairing: PendingPairing) -> control_plane_pb2.PendingPairing:
    return control_plane_pb2.PendingPairing(
        user_code=pairing.user_code,
        key_id=pairing.key_id,
        label=pairing.label,
        platform=PLATFORMS[pairing.platform],
        client_version=pairing.client_version,
        expire_time=timestamp_of(pairing.expires_at_ms),
    )
