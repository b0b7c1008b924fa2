"""What an operation takes on PostgreSQL with many tasks in the database, and with none."""

from contextlib import AsyncExitStack

from bench.databases.database import POSTGRES, Database
from bench.durable import plan
from bench.durable.alternation import Alternation, Service, alternate
from bench.durable.child import Child
from bench.durable.compare_durable import operations_section, tabulate
from bench.durable.server import DurableProcess
from bench.interleaving import Progress
from bench.our_relay.workbench import Bench
from bench.placement import on_all_cores
from bench.report import Section
from bench.variant import VariantFailedError, VariantUnavailableError

_FILL_SECONDS = 300.0


async def growth(bench: Bench) -> Section:
    section = operations_section(POSTGRES.title)
    section.notes += [
        POSTGRES.note,
        "one service, on the server's core, and a database of its own on any core",
    ]
    try:
        POSTGRES.require()
        found = await _measured(bench)
    except (VariantUnavailableError, VariantFailedError, OSError) as failure:
        section.absent[POSTGRES.title] = str(failure) or type(failure).__name__
    else:
        tabulate(section, found, POSTGRES.title)
    return section


async def _measured(bench: Bench) -> Alternation:
    effort = bench.effort.databases
    with bench.session.progress() as progress:
        async with AsyncExitStack() as started:
            services = [await _service(tasks, started, progress) for tasks in (0, plan.TASKS)]
            return await alternate(
                services,
                crews=plan.CREWS,
                rounds=effort.rounds,
                operations=effort.operations,
                random=bench.session.random,
                progress=progress,
            )


async def _service(tasks: int, started: AsyncExitStack, progress: Progress) -> Service:
    progress(f"{POSTGRES.title}: filling a database with {tasks:,} tasks")
    database = Database(POSTGRES)
    # Each is registered first: a start that fails half way has left something behind.
    started.push_async_callback(database.stop)
    await database.start()
    url = await database.create("growth")
    filler = Child("bench.databases.ballast", url, str(tasks), placement=on_all_cores)
    try:
        await filler.start(_FILL_SECONDS)
    finally:
        await filler.stop()
    server = DurableProcess(url)
    started.push_async_callback(server.stop)
    await server.start()
    return Service(POSTGRES.title, tasks, server)
