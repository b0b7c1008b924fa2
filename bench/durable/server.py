"""A running durable service of the bench."""

from collections.abc import Mapping
from tempfile import TemporaryDirectory

from bench.durable.child import Child
from bench.process_stats import ServerMeter

MEMORY, SQLITE = "memory", "SQLite"
STORES = (MEMORY, SQLITE)
_START_SECONDS = 60.0
# Far slower than any machine fills a store.
_TASKS_PER_SECOND = 200


class DurableProcess:
    """The service in a process of its own on a loopback port, bound to the server's core.

    Args:
        store: one of `STORES`, or the URL of a database.
        tasks: how many tasks wait in it from the beginning.
        environment: variables that are set for it alone.
    """

    def __init__(self, store: str, tasks: int = 0, *, environment: Mapping[str, str] | None = None) -> None:
        self._store = store
        self._tasks = tasks
        self._environment = environment
        self._folder: TemporaryDirectory[str] | None = None
        self._child: Child | None = None
        self.address = ""

    async def start(self) -> None:
        """Starts the process and waits until it has its tasks and listens.

        Raises:
            VariantUnavailableError: it did not come up; the message says why.
        """
        form = self._store if "://" in self._store else "memory:"
        if self._store == SQLITE:
            self._folder = TemporaryDirectory(prefix="bench-durable-")
            form = f"sqlite:///{self._folder.name}/tasks.db"
        self._child = Child(
            "bench.durable.serving",
            "--store",
            form,
            "--tasks",
            str(self._tasks),
            environment=self._environment,
        )
        self.address = await self._child.start(_START_SECONDS + self._tasks / _TASKS_PER_SECOND)

    async def stop(self) -> None:
        """Ends the process and removes its files."""
        if self._child is not None:
            await self._child.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def meter(self) -> ServerMeter:
        """Starts counting what the process takes."""
        assert self._child is not None
        return self._child.meter()
