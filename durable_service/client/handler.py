"""What a handler gets, and what it may return."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from durable_service.client.actions import ActionInput
from durable_service.client.connectors.lease_binding import AnyConnector
from durable_service.client.extensions import Extensions
from durable_service.client.ledger import Ledger
from durable_service.client.records import Records
from durable_service.client.reservations import Reservations
from durable_service.client.stop_signal import StopSignal
from durable_service.client.task_view import Task, Usage
from durable_service.core.canonical_json import JsonValue
from durable_service.core.definition import Driver

_DRIVER: Final = re.compile(r"(?P<id>.+)@(?P<version>[1-9][0-9]{0,15})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Completed:
    """The task is done.

    Attributes:
        result_ref: Where the result is kept; None when there is none.
    """

    result_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The task stops without being done, and not for a failure."""

    result_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Yielded:
    """The task is given back for a while: a timer, or a retry after a pause. Then the handler runs again.

    Attributes:
        delay_ms: It cannot be claimed before that many milliseconds are over, by the store's clock.
        reason: For people.
    """

    delay_ms: int
    reason: str = ""


Outcome: TypeAlias = Completed | Stopped | Yielded | str | None
"""What a handler returns; a text is the `result_ref` of `Completed`, and None is `Completed` without one."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """A task that this worker holds, and everything that its handler may do to it.

    A handler runs from its start whenever the task is claimed. What it did before it finds again by the same
    action ids, reservation ids and checkpoints.

    Attributes:
        task: As it was claimed.
        fence: Of this lease: it grows with every claim.
        signal: Set when the handler should stop; its asyncio task is cancelled then as well.
        actions: Effects on the outside world.
        records: Events, checkpoints and artifacts.
        reservations: The budget.
        extensions: Named slots.
    """

    task: Task
    fence: int
    signal: StopSignal
    actions: Ledger
    records: Records
    reservations: Reservations
    extensions: Extensions

    @property
    def input(self) -> JsonValue:
        """The task's inline input."""
        return self.task.input

    async def execute(self, wanted: ActionInput, connector: AnyConnector) -> str:
        """Carry out an effect; see `Ledger.execute`."""
        return await self.actions.execute(wanted, connector)

    async def reserve(
        self, tokens: int = 0, cost_micros: int = 0, *, reservation_id: str | None = None
    ) -> Usage:
        """Take from the budget; see `Reservations.reserve`."""
        return await self.reservations.reserve(tokens, cost_micros, reservation_id=reservation_id)


Handler: TypeAlias = Callable[[TaskContext], Awaitable[Outcome]]


def drivers_of(handlers: Mapping[str, Handler]) -> dict[Driver, Handler]:
    """Return the handlers by driver; each is named `ID@VERSION`, as `report@1`.

    Raises:
        ValueError: A name has another form.
    """
    by_driver = {}
    for name, handler in handlers.items():
        match = _DRIVER.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} does not name a driver: write ID@VERSION, as report@1")
        by_driver[Driver(match["id"], int(match["version"]))] = handler
    return by_driver
