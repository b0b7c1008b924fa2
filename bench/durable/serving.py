"""A durable service that may have many tasks from its first moment: `python -m bench.durable.serving`.

Parts, event loop and collector are those of `durable-service serve`; a store in memory can be filled from
within its process alone.
"""

import asyncio
import signal
import sys
from itertools import count
from pathlib import Path

import click

from bench.durable.parties import ACTOR, DRIVER, GRANT, TENANT, principals
from durable_service.core.admission import TaskCreation
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Identity, TaskDefinition
from durable_service.principals_source import PrincipalsSource
from durable_service.process import DURABLE_LOG_KEYS
from durable_service.server import DurableServer, ServerOptions
from durable_service.store.base import TaskStore
from durable_service.stores import open_stores
from service_common.errors import SettingsError
from service_common.event_loop import run, tune_garbage_collector
from service_common.listeners import Listener
from service_common.logs import configure_logs
from service_common.sessions.limits import SessionTimes

# Nothing may run out between the bursts of a run: not a stream that waits its turn, and not a lease.
_HOUR_MS = 3_600_000
_TIMES = SessionTimes(liveness_ms=_HOUR_MS, lease_ms=_HOUR_MS, renew_ms=20_000, stream_age_ms=10 * _HOUR_MS)
# As many as one commit of the SQLite store takes.
_FILLERS = 256


async def fill(store: TaskStore, tasks: int) -> None:
    """Admits so many tasks that wait for a worker."""
    numbers = count()

    async def admit_in_turn() -> None:
        while (number := next(numbers)) < tasks:
            await store.create(creation(number))

    await asyncio.gather(*(admit_in_turn() for _ in range(_FILLERS)))


def creation(number: int) -> TaskCreation:
    """One of the tasks that wait from the beginning."""
    name = f"ballast-{number}"
    identity = Identity(TENANT, ACTOR, name, name, name)
    definition = TaskDefinition(
        name, identity, "none", "inline", 0, (GRANT,), driver=DRIVER, input=CanonicalJson('{"day":7}')
    )
    return TaskCreation(definition)


async def serve(store: str, tasks: int, blobs: Path | None = None) -> None:
    """Fills the store, says where it serves, and serves until SIGTERM or the end of standard input."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # A parent that was killed closes its end.
    loop.add_reader(sys.stdin.fileno(), stop.set)
    async with open_stores(store, blobs) as stores:
        await fill(stores.tasks, tasks)
        options = ServerOptions([Listener("127.0.0.1:0", dev=True)], times=_TIMES, store_kind=store)
        async with DurableServer(stores, PrincipalsSource(principals()), options) as server:
            tune_garbage_collector()
            print(server.address, flush=True)
            await stop.wait()


@click.command()
@click.option("--store", required=True, help="As `durable-service serve` takes it.")
@click.option("--tasks", type=int, default=0, help="How many wait in it from the beginning.")
def main(*, store: str, tasks: int) -> None:
    """Serves the durable service to the bench."""
    configure_logs("INFO", keys=DURABLE_LOG_KEYS, pretty=False)
    try:
        run(serve(store, tasks))
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
