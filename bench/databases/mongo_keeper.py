"""A server that speaks MongoDB's protocol: `python -m bench.databases.mongo_keeper`."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from bench.databases.keeper import free_port, keep
from bench.databases.programs import secantus_program


class SecantusServer:
    """SecantusDB, a member of a set of one, with every commit written to the disk before it is confirmed."""

    user: str | None = None
    stop_signal = signal.SIGTERM
    stop_at_once_signal = signal.SIGKILL

    def __init__(self) -> None:
        self._port = free_port()

    def prepare(self, folder: Path) -> Sequence[str]:
        data = folder / "data"
        data.mkdir()
        return [
            secantus_program(),
            "--port",
            str(self._port),
            "--storage-path",
            str(data),
            "--sync-on-commit",
            "--log-level",
            "ERROR",
        ]

    def create_database(self, name: str) -> str:
        # A database comes into being with its first collection.
        try:
            with MongoClient[dict[str, Any]](
                f"mongodb://127.0.0.1:{self._port}", serverSelectionTimeoutMS=500
            ) as client:
                client.admin.command("hello")
        except PyMongoError as error:
            raise ConnectionError(str(error)) from error
        return f"mongodb://127.0.0.1:{self._port}/{name}"


if __name__ == "__main__":
    keep(SecantusServer())
