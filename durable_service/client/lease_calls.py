"""Writes under a lease: each names it, none is sent once it is lost, every answer is heeded."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, TypeVar

from google.protobuf.message import Message

from durable_service.client.calls import Calls
from durable_service.client.errors import (
    CancelRequestedError,
    DurableError,
    LeaseLostError,
    RecoveryRequiredError,
)
from durable_service.client.held_task import HeldTask
from durable_service.client.stop_signal import StopCause
from service_common.dual_calls import DualCalls
from service_common.unary_calls import ATTEMPTS, Method, may_help_again

ResponseT = TypeVar("ResponseT", bound=Message)


class LeaseCalls:
    """Calls under one lease.

    Attributes:
        held: The lease.
        unary: For what does not ride a session.
    """

    def __init__(self, held: HeldTask, calls: DualCalls, unary: Calls) -> None:
        """Call under `held`."""
        self.held = held
        self.unary = unary
        self._calls = calls

    async def call(self, method: Method[Any, ResponseT], request: Message, arm: str = "") -> ResponseT:
        """Make a call, with the lease filled in.

        Args:
            method: Which.
            request: Its request; a field `lease` is set here.
            arm: Name of the call on the session; empty when it does not ride one.

        Raises:
            LeaseLostError: The lease is lost, by this worker's clock or the service's word.
            CancelRequestedError: The task is to end, which stands against this call.
            RecoveryRequiredError: An open outcome stands against it.
            DurableError: It was refused for another reason, or not answered.
        """
        self.bind(request)
        return await self._heeded(lambda: self._make(method, request, arm))

    async def settle(self, method: Method[Any, ResponseT], request: Message, arm: str = "") -> ResponseT:
        """Make a call that has to get through, again and again for as long as the lease is held.

        Raises:
            LeaseLostError: The lease was lost meanwhile.
            CancelRequestedError: As for `call`.
            RecoveryRequiredError: As for `call`.
            DurableError: It was refused.
        """
        return await self._settled(lambda: self.call(method, request, arm))

    async def settle_upload(self, method: Method[Any, ResponseT], messages: Sequence[Message]) -> ResponseT:
        """Upload messages, the first of which names the lease, as `settle` makes a call; it raises alike."""
        return await self._settled(lambda: self._heeded(lambda: self.unary.upload(method, messages)))

    async def end(self, method: Method[Any, ResponseT], request: Message, arm: str) -> ResponseT:
        """Make the call that ends the lease, as `settle` does, and find out what became of it.

        It may have been written although no answer came, and the news that the lease is over is then news of
        this very end. So what was sent and not answered is asked once more after the lease is lost: its
        repeat is answered like the first call when that was written, and refused otherwise.

        Raises:
            LeaseLostError: The lease was lost, and not by this call.
            CancelRequestedError: As for `call`.
            RecoveryRequiredError: As for `call`.
            DurableError: It was refused.
        """
        unanswered = False
        while self.held.is_held or not unanswered:
            try:
                return await self.call(method, request, arm)
            except DurableError as error:
                if not may_help_again(error):
                    raise
                unanswered = True
                await self.unary.pause(ATTEMPTS, error)
        try:
            # The service may be back just now, and whoever has said that the lease is over was reached.
            async with self.unary.afresh() as calls:
                return await calls.call(method, request)
        except DurableError:
            # Not written, or nobody can be asked: what is known is that the lease is over.
            self.held.require_held()
            raise

    def bind(self, request: Message) -> None:
        """Fill the lease into a request."""
        # Every request that is written under a lease has the field.
        request.lease.CopyFrom(self.held.ref)  # type: ignore[attr-defined]

    def refused(self, error: DurableError) -> NoReturn:
        """Heed a refusal.

        Raises:
            LeaseLostError: It says so.
            CancelRequestedError: It says so.
            RecoveryRequiredError: It says so.
            DurableError: Any other one, as it is.
        """
        task_id = self.held.task_id
        match error.reason:
            case "LEASE_LOST" | "TASK_NOT_FOUND":
                self.held.lose("the service says so")
                raise LeaseLostError(task_id, "the service says so") from error
            case "CANCEL_REQUESTED":
                self.held.signal.set(StopCause.CANCEL_REQUESTED)
                raise CancelRequestedError(task_id) from error
            case "RECOVERY_REQUIRED":
                named = error.metadata.get("action_ids", "")
                raise RecoveryRequiredError(task_id, [each for each in named.split(",") if each]) from error
            case _:
                raise error

    async def _settled(self, call: Callable[[], Awaitable[ResponseT]]) -> ResponseT:
        while True:
            try:
                return await call()
            except DurableError as error:
                if not may_help_again(error):
                    raise
                await self.unary.pause(ATTEMPTS, error)

    async def _heeded(self, make: Callable[[], Awaitable[ResponseT]]) -> ResponseT:
        """Makes a call while the lease is held, and heeds what is said of the lease."""
        self.held.require_held()
        try:
            answer = await make()
        except DurableError as error:
            self.refused(error)
        status = getattr(answer, "status", None)
        if status is not None:
            self.held.heed_status(status)
        return answer

    async def _make(self, method: Method[Any, ResponseT], request: Message, arm: str) -> ResponseT:
        if arm:
            return await self._calls.call(arm, method, request)
        return await self.unary.call(method, request)
