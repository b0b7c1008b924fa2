"""Why a handler should stop, told to whoever works for it."""

import asyncio
from collections.abc import Callable
from enum import StrEnum

from durable_service.client.errors import CancelRequestedError, LeaseLostError


class StopCause(StrEnum):
    """What stops a task's work."""

    CANCEL_REQUESTED = "cancel-requested"
    LEASE_LOST = "lease-lost"
    WORKER_STOPS = "worker-stops"


class StopSignal:
    """Set once work should stop. A cancel leaves time to finish an effect; a lost lease leaves none."""

    def __init__(self, task_id: str) -> None:
        """Start unset."""
        self._task_id = task_id
        self._set = asyncio.Event()
        self._lost_because = ""
        self._listeners: list[Callable[[StopCause], None]] = []
        self.cause: StopCause | None = None

    @property
    def is_set(self) -> bool:
        """Whether work should stop."""
        return self.cause is not None

    async def wait(self) -> StopCause:
        """Return the cause, once there is one."""
        await self._set.wait()
        assert self.cause is not None  # noqa: S101 - set before the event
        return self.cause

    def raise_if_set(self) -> None:
        """Do nothing while work may go on.

        Raises:
            LeaseLostError: The task is somebody else's, or will be.
            CancelRequestedError: Somebody wants it to end.
            asyncio.CancelledError: This worker stops.
        """
        match self.cause:
            case None:
                return
            case StopCause.LEASE_LOST:
                raise LeaseLostError(self._task_id, self._lost_because)
            case StopCause.CANCEL_REQUESTED:
                raise CancelRequestedError(self._task_id)
            case StopCause.WORKER_STOPS:
                raise asyncio.CancelledError

    def listen(self, listener: Callable[[StopCause], None]) -> None:
        """Call back for every cause, at once for one that is there."""
        self._listeners.append(listener)
        if self.cause is not None:
            listener(self.cause)

    def set(self, cause: StopCause, why: str = "") -> None:
        """Give a cause. A lost lease overrides the others; nothing overrides it."""
        if self.cause is StopCause.LEASE_LOST or self.cause is cause:
            return
        if self.cause is not None and cause is not StopCause.LEASE_LOST:
            return
        self.cause = cause
        self._lost_because = why
        self._set.set()
        for listener in tuple(self._listeners):
            listener(cause)
