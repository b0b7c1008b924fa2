"""Those who hear of changes."""

import asyncio
from collections.abc import Callable, Iterable

from durable_service.store.base import Listener, TaskChange


class Listeners:
    """A list of listeners that may change while it is called."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def tell(self, changes: Iterable[TaskChange]) -> None:
        """Calls everybody, on the event loop. One that breaks is reported there and harms nobody else."""
        for change in changes:
            for listener in tuple(self._listeners):
                try:
                    listener(change)
                except Exception as error:  # noqa: BLE001 - it is reported
                    report = {"message": "a listener of the task store broke", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(report)
