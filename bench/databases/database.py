"""The databases that services of the bench can share."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.databases import programs
from bench.durable.child import Child
from bench.placement import on_all_cores

_START_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """One kind of database server.

    Attributes:
        keeper: the module that runs a server of this kind.
        bare: the module of a loop of compare-and-sets on it.
        require: raises VariantUnavailableError where it cannot run here.
        one_core: the server's work runs on one core at a time.
        slow: as many operations as on the others would take too long.
        note: what the server makes sure of before it answers.
    """

    title: str
    keeper: str
    bare: str
    require: Callable[[], None]
    one_core: bool
    slow: bool
    note: str


def _require_postgres() -> None:
    programs.require_package("psycopg", "postgres")
    programs.require_package("psycopg_pool", "postgres")
    programs.postgres_program("initdb")


def _require_mongo() -> None:
    programs.require_package("pymongo", "mongo")
    programs.secantus_program()


POSTGRES = DatabaseKind(
    "PostgreSQL",
    "bench.databases.postgres_keeper",
    "bench.databases.bare_postgres",
    _require_postgres,
    one_core=False,
    slow=False,
    note="PostgreSQL with its own defaults: fsync and synchronous_commit on, each commit flushed to the disk",
)
MONGO = DatabaseKind(
    "MongoDB (SecantusDB)",
    "bench.databases.mongo_keeper",
    "bench.databases.bare_mongo",
    _require_mongo,
    one_core=True,
    slow=True,
    note="SecantusDB with --sync-on-commit, a server in Python that speaks MongoDB's protocol: the figures "
    "show what the service asks of a database, and nothing of how fast MongoDB is",
)
KINDS = (POSTGRES, MONGO)


class Database:
    """A server of one kind in a process of its own, which may run on any core."""

    def __init__(self, kind: DatabaseKind) -> None:
        self._kind = kind
        self._child: Child | None = None
        self.process_id = 0

    async def start(self) -> None:
        """Starts the server and waits until it serves.

        Raises:
            VariantUnavailableError: there is none here, or it did not come up.
        """
        self._kind.require()
        self._child = Child(self._kind.keeper, placement=on_all_cores)
        self.process_id = int(await self._child.start(_START_SECONDS))

    async def create(self, name: str) -> str:
        """Makes an empty database; its URL for `--store`."""
        assert self._child is not None
        return await self._child.ask(name)

    async def stop(self) -> None:
        """Ends the server and removes its files."""
        if self._child is not None:
            await self._child.stop()
