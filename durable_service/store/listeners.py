"""Those who hear of changes."""

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
        for change in changes:
            for listener in tuple(self._listeners):
                listener(change)
