"""Where a service of these tests keeps its tasks, and how time is let pass there."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Where every kill of these tests is tried.
KINDS = ("sqlite", "postgresql", "mongodb")


@dataclass(frozen=True)
class Kept:
    """A place that one test has to itself.

    Attributes:
        setting: As `--store` takes it.
        pass_ms: Lets time go by at the database; None where that is the service's own to do.
        kill: Ends the database without a warning and begins it again; None where it is no process.
    """

    kind: str
    setting: str
    pass_ms: Callable[[int], None] | None = None
    kill: Callable[[], None] | None = None


def file_in(folder: Path) -> Kept:
    return Kept("sqlite", f"sqlite:///{folder / 'tasks.db'}")


def blob_keys(kept: Kept) -> list[str]:
    """Under which keys the place has bytes, whether or not a task refers to them."""
    match kept.kind:
        case "postgresql":
            import psycopg

            with psycopg.connect(kept.setting) as connection:
                rows = connection.execute("SELECT key FROM durable_blobs ORDER BY key").fetchall()
            return [key for (key,) in rows]
        case "mongodb":
            from pymongo import MongoClient

            with MongoClient[dict[str, Any]](kept.setting) as client:
                return sorted(client.get_default_database()["durable_artifacts"].distinct("_id"))
        case _:
            folder = Path(kept.setting.removeprefix("sqlite:///") + ".blobs")
            return sorted(path.name for path in folder.glob("*/*"))
