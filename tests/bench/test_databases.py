import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from rich.console import Console

from bench.databases import compare_databases, growth, programs, shares
from bench.databases import plan as databases_plan
from bench.databases.compare_databases import databases
from bench.databases.contestants import BARE, Burst, Services
from bench.databases.database import KINDS, MONGO, POSTGRES, Database, DatabaseKind
from bench.databases.rounds import Rounds, measure_in_turns
from bench.databases.shares import Limit, Shares
from bench.durable import plan as durable_plan
from bench.durable.child import Child
from bench.our_relay import plan
from bench.our_relay.workbench import Bench
from bench.process_trees import idle_seconds, tree_cpu_seconds
from bench.report import Section
from bench.session import Session
from bench.tables import print_section
from bench.variant import VariantFailedError, VariantUnavailableError
from durable_service.core.definition import Driver
from durable_service.core.states import TaskState
from durable_service.store.base import ClaimableQuery, StateCount
from durable_service.store.postgres import PostgresTaskStore

EFFORT = databases_plan.DatabasesEffort(rounds=1, operations=4, few_operations=4)
OPERATIONS = ["create", "claim", "renew", "event", "complete", "lifecycle"]


def require(kind: DatabaseKind) -> None:
    try:
        kind.require()
    except VariantUnavailableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def bench_of(effort: databases_plan.DatabasesEffort) -> Bench:
    return Bench(Session(Console(file=io.StringIO())), replace(plan.QUICK, databases=effort), None, 100)


@pytest.mark.parametrize(
    ("services", "database", "load", "idle", "limit"),
    [
        ([9.0], 0.0, 3.0, 8.0, Limit.SERVICE),
        ([5.0, 4.0], 2.0, 8.7, 0.3, Limit.LOAD),
        ([3.0], 9.0, 2.0, 6.0, Limit.DATABASE),
        ([5.0, 4.0], 4.0, 6.0, 1.0, Limit.CORES),
        ([3.0], 2.0, 2.0, 13.0, Limit.WAITING),
        ([5.0], 2.0, 4.0, 1.0, Limit.OTHERS),
    ],
)
def test_what_limits_is_told_by_who_is_at_the_end_of_a_core(
    monkeypatch: pytest.MonkeyPatch,
    services: Sequence[float],
    database: float,
    load: float,
    idle: float,
    limit: Limit,
) -> None:
    monkeypatch.setattr(shares, "_CORES", 2)
    assert Shares(services, database, load, idle, 10.0).limit(database_on_one_core=True) is limit


def test_a_server_of_many_processes_may_take_more_than_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_CORES", 4)
    assert Shares([2.0], 15.0, 2.0, 20.0, 10.0).limit(database_on_one_core=False) is Limit.WAITING


def test_shares_of_several_rounds_are_added() -> None:
    total = Shares.total([Shares([1.0, 2.0], 0.5, 0.25, 3.0, 4.0), Shares([2.0, 3.0], 1.5, 0.75, 1.0, 4.0)])
    assert total == Shares([3.0, 5.0], 2.0, 1.0, 4.0, 8.0)
    assert total.cores(total.database) == 0.25


def test_ratios_are_of_rounds_in_which_both_took_part() -> None:
    found = Rounds()
    for name, elapsed in (("1 replica", (2.0, 1.0, 4.0)), ("SQLite", (1.0, 2.0))):
        for number, seconds in enumerate(elapsed, 1):
            found.add((name, 8, "claim"), number, Burst([1.0] * 8, Shares([0.0], 0.0, 0.0, 0.0, seconds)))
    ratio = found.ratio(("1 replica", 8, "claim"), ("SQLite", 8, "claim"))
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high, ratio.pairs) == (1.25, 0.5, 2.0, 2)
    assert found.ratio(("1 replica", 8, "claim"), ("SQLite", 8, "renew")) is None


def test_time_of_children_counts_before_and_after_they_end() -> None:
    code = "sum(range(20_000_000)); print(flush=True); input()"
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    parent += "; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", parent, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        running = tree_cpu_seconds(process.pid)
        process.stdin.write(b"\n")
        process.stdout.readline()
        ended = tree_cpu_seconds(process.pid)
        process.stdin.write(b"\n")
    assert 0.05 < running <= ended
    with pytest.raises(FileNotFoundError):
        tree_cpu_seconds(process.pid)


def test_idle_time_is_that_of_all_cores() -> None:
    assert 0 < idle_seconds() <= idle_seconds()


@pytest.mark.process
async def test_one_that_does_not_start_is_left_out_and_the_others_go_on() -> None:
    contestants = [Services("broken", "sqlite:////no/such/folder/tasks.db"), Services("SQLite", "sqlite:")]
    found = await measure_in_turns(
        contestants, crews=(1, 2), rounds=1, operations=4, random=Random(1), progress=lambda _line: None
    )
    said = "bench.durable.serving ended: Error: --store sqlite:////no/such/folder/tasks.db: "
    assert list(found.absent) == ["broken"]
    assert found.absent["broken"].startswith(said)
    assert set(found.bursts) == {
        ("SQLite", workers, operation) for workers in (1, 2) for operation in OPERATIONS
    }
    for bursts in found.bursts.values():
        assert [len(burst.latencies_ms) for burst in bursts.values()] == [4]


class Breaking(Services):
    async def carry_out(self, operation: str, turns: int) -> Burst:
        if operation == "renew":
            raise VariantFailedError("refused")
        return await super().carry_out(operation, turns)


@pytest.mark.process
async def test_one_that_breaks_down_keeps_what_was_measured() -> None:
    found = await measure_in_turns(
        [Breaking("memory", "memory:")],
        crews=(1,),
        rounds=1,
        operations=4,
        random=Random(1),
        progress=lambda _line: None,
    )
    assert found.absent == {"memory": "broke down at renew: refused"}
    assert found.bursts == {}


@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
async def test_a_server_ends_with_its_keeper(kind: DatabaseKind) -> None:
    require(kind)
    database = Database(kind)
    try:
        await database.start()
        first, second = await database.create("first"), await database.create("second")
        assert first.endswith("/first")
        assert second == first.removesuffix("first") + "second"
        assert tree_cpu_seconds(database.process_id) > 0
    finally:
        await database.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(database.process_id, 0)


@pytest.mark.process
def test_a_server_that_is_being_prepared_leaves_nothing_behind() -> None:
    require(POSTGRES)
    with TemporaryDirectory() as name:
        # The server may be another user's, who has to get at it.
        Path(name).chmod(0o755)
        with subprocess.Popen(
            [sys.executable, "-m", POSTGRES.keeper],
            env=os.environ | {"TMPDIR": name, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        ) as keeper:
            while keeper.poll() is None and not list(Path(name).glob("*/cluster/*")):
                time.sleep(0.01)
            keeper.terminate()
            assert keeper.wait(60) == 0
        assert list(Path(name).iterdir()) == []


def test_where_there_is_no_server_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(programs, "_POSTGRES_FOLDERS", ())
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(VariantUnavailableError, match="apt install postgresql"):
        POSTGRES.require()
    with pytest.raises(VariantUnavailableError, match="SecantusDB"):
        MONGO.require()
    with pytest.raises(VariantUnavailableError, match=r"sealwork\[postgres\]"):
        programs.require_package("no_such_package", "postgres")


@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
async def test_replicas_are_compared_with_one_and_with_the_database_by_itself(
    monkeypatch: pytest.MonkeyPatch, kind: DatabaseKind
) -> None:
    require(kind)
    monkeypatch.setattr(databases_plan, "CREWS", (4,))
    monkeypatch.setattr(databases_plan, "REPLICAS", (1, 2))
    section = await compare_databases._on_database(bench_of(EFFORT), kind)
    assert section.absent == {}
    told = {(cost.deployment, cost.workers, cost.operation) for cost in section.deployments}
    served = {
        (name, 4, operation) for name in ("SQLite", "1 replica", "2 replicas") for operation in OPERATIONS
    }
    assert told == served | {("no service", 4, BARE)}
    assert {cost.samples for cost in section.deployments} == {4}
    assert {cost.database_cores for cost in section.deployments if cost.deployment == "SQLite"} == {0.0}
    names = {comparison.name for comparison in section.comparisons}
    assert "a second, claim, 4 at a time: 1 replica / SQLite" in names
    assert "a second, event, 4 at a time: 2 replicas / 1 replica" in names
    assert "a second, renew, 4 at a time: 1 replica / no service, bare write" in names
    assert len(names) == 4 + 4 + 2


async def test_a_missing_server_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise VariantUnavailableError("none here")

    kinds = (replace(POSTGRES, require=missing),)
    monkeypatch.setattr(compare_databases, "KINDS", kinds)
    monkeypatch.setattr(growth, "POSTGRES", kinds[0])
    monkeypatch.setattr(databases_plan, "CREWS", (1,))
    embedded, section, many = [section async for section in databases(bench_of(EFFORT))]
    assert embedded.absent == {}
    assert len(embedded.deployments) == 2 * 6
    assert [holding.unit for holding in embedded.holdings] == ["ms"]
    assert (section.deployments, section.absent) == ([], {"PostgreSQL": "none here"})
    assert (many.operations, many.absent) == ([], {"PostgreSQL": "none here"})


@pytest.mark.process
async def test_a_database_that_was_filled_has_its_tasks() -> None:
    require(POSTGRES)
    database, url = Database(POSTGRES), ""
    try:
        await database.start()
        url = await database.create("filled")
        filler = Child("bench.databases.ballast", url, "1500")
        try:
            assert await filler.start(60.0) == "filled"
        finally:
            await filler.stop()
        store = await PostgresTaskStore.open(url)
        try:
            assert list(await store.counts()) == [StateCount("bench", TaskState.QUEUED, 1500)]
            query = ClaimableQuery("bench", frozenset({Driver("bench", 1)}), limit=3)
            names = [candidate.key.task_id for candidate in await store.claimable(query)]
            assert names == ["ballast-0", "ballast-1", "ballast-2"]
        finally:
            await store.close()
    finally:
        await database.stop()


@pytest.mark.process
async def test_many_tasks_on_postgresql_are_compared_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    require(POSTGRES)
    monkeypatch.setattr(durable_plan, "TASKS", 50)
    monkeypatch.setattr(durable_plan, "CREWS", (4,))
    section = await growth.growth(bench_of(EFFORT))
    assert section.absent == {}
    told = {(cost.queued, cost.operation, cost.samples) for cost in section.operations}
    assert told == {(tasks, f"{operation}, 4 workers", 4) for tasks in (0, 50) for operation in OPERATIONS}
    assert [comparison.most for comparison in section.comparisons] == [1.5] * 6


def test_the_table_fits_a_page() -> None:
    section = Section("Durable service", "operation")
    shares_of_two = Shares([8.0], 1.0, 2.0, 0.1, 10.0)
    section.deployments.append(
        compare_databases._cost(
            ("2 replicas", 64, "lifecycle"), [1.0, 2.0], 1234.5, shares_of_two, one_core=True
        )
    )
    page = io.StringIO()
    print_section(section, Console(file=page, width=120))
    row = next(line for line in page.getvalue().splitlines() if "2 replicas" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:7] == ["2 replicas", "64", "lifecycle", "2", "1,234", "1.50", "1.99"]
    assert cells[7:11] == ["0.80", "0.10", "0.20", "0.01"]
