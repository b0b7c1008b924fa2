"""Who is connected to this process; the newest stream of a holder wins."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import grpc

from service_common.clocks import Clock
from service_common.errors import ServiceError
from service_common.sessions.endings import EndReason
from service_common.sessions.session import ServerSession

Session = TypeVar("Session", bound=ServerSession[Any, Any])

_FLAPS = 3
_FLAP_WINDOW_SECONDS = 60.0


class SessionRegistry(Generic[Session]):
    """Live sessions by holder.

    Args:
        most: streams that one holder may have. With one, a newer stream supersedes the
            older; with more, a further one is refused.
        superseded: what the older stream is ended with.
        conflict: what a holder is refused with whose processes keep replacing each other.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        most: int,
        superseded: Callable[[], ServiceError] | None = None,
        conflict: Callable[[], ServiceError] | None = None,
    ) -> None:
        self._clock = clock
        self._most = most
        self._superseded = superseded or _superseded
        self._conflict = conflict or _conflict
        self._sessions: dict[str, dict[str, Session]] = {}
        self._processes: dict[str, str] = {}
        self._flaps: dict[str, deque[float]] = {}
        self._epochs: dict[str, int] = {}

    def admit(self, holder: str, process_id: str, session: Session) -> None:
        """Makes `session` a live one, under a growing epoch.

        Raises:
            ServiceError: DEVICE_ID_CONFLICT when two processes of one holder keep
                replacing each other, TOO_MANY_SESSIONS when the holder has its most.
        """
        present = self._sessions.setdefault(holder, {})
        if len(present) >= self._most > 1:
            raise _too_many_sessions(self._most)
        if self._most == 1:
            self._supersede(holder, process_id, present)
        # Wall-clock milliseconds as a floor: epochs grow over a restart of this process too.
        session.epoch = max(self._epochs.get(holder, 0) + 1, self._clock.now_ms())
        self._epochs[holder] = session.epoch
        present[session.session_id] = session

    def remove(self, holder: str, session: Session) -> None:
        """Forgets this very session; a successor of the same holder stays."""
        present = self._sessions.get(holder)
        if present is None:
            return
        present.pop(session.session_id, None)
        if not present:
            del self._sessions[holder]

    def of(self, holder: str) -> tuple[Session, ...]:
        """The holder's live sessions."""
        return tuple(self._sessions.get(holder, {}).values())

    def __iter__(self) -> Iterator[Session]:
        return iter([session for present in self._sessions.values() for session in present.values()])

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def _supersede(self, holder: str, process_id: str, present: dict[str, Session]) -> None:
        if present and self._processes.get(holder) != process_id:
            self._count_flap(holder)
        for older in tuple(present.values()):
            older.end(EndReason.SUPERSEDED, self._superseded())
            # Out at once: the older one's own clean-up comes later and must not find the newer.
            del present[older.session_id]
        self._processes[holder] = process_id

    def _count_flap(self, holder: str) -> None:
        now = self._clock.monotonic()
        flaps = self._flaps.setdefault(holder, deque())
        while flaps and flaps[0] < now - _FLAP_WINDOW_SECONDS:
            flaps.popleft()
        if len(flaps) >= _FLAPS:
            raise self._conflict()
        flaps.append(now)


def superseded() -> ServiceError:
    """A newer stream of the device has taken over."""
    return ServiceError(
        grpc.StatusCode.ABORTED,
        "SESSION_SUPERSEDED",
        "a newer stream of this device has taken over; look for a second process with this identity",
        retry_after_ms=30_000,
    )


# Under a name that the argument of the same name does not hide.
_superseded = superseded


def _conflict() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "DEVICE_ID_CONFLICT",
        "two live processes of this device keep replacing each other; stop one, or pair it as its own device",
    )


def _too_many_sessions(most: int) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TOO_MANY_SESSIONS",
        f"at most {most} streams at a time; share one between tasks",
        retry_after_ms=10_000,
    )
