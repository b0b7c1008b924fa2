"""The tasks commands: create, list, get, cancel, wait."""

import json
from pathlib import Path
from typing import Any

import click

from durable_service.client.client import Client
from durable_service.client.task_view import Condition, Task
from durable_service.client.tasks import NewTask, NoInput, TaskFilter, View
from durable_service.commands.service_calls import (
    STATUS,
    OrderedGroup,
    as_json,
    ask,
    service_options,
    show_json,
)
from durable_service.commands.service_calls import show_table as show_rows
from durable_service.commands.task_texts import TASK_COLUMNS, show_task, task_document, task_row
from durable_service.core.canonical_json import JsonValue
from durable_service.core.definition import Budget, Driver
from durable_service.core.limits import (
    DEFAULT_MAXIMUM_ATTEMPTS,
    DEFAULT_MAXIMUM_COST_MICROS,
    DEFAULT_MAXIMUM_TOKENS,
)
from durable_service.core.states import TaskState
from service_common.durations import Duration

_MILLISECONDS = Duration(milliseconds=True)
_TASK = click.argument("task_id", metavar="TASK")


class DriverName(click.ParamType[Driver]):
    """A driver as `ID@VERSION`."""

    name = "driver"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Driver:
        name, _, version = str(value).rpartition("@")
        if not name or not version.isdecimal():
            self.fail(f"{value!r} is not a driver: write ID@VERSION, as report@1", param, ctx)
        return Driver(name, int(version))


@click.group(cls=OrderedGroup, epilog=STATUS)
def tasks() -> None:
    """Create, read and cancel tasks."""


@tasks.command(epilog=STATUS)
@_TASK
@click.option("--driver", type=DriverName(), metavar="ID@VERSION", help="The handler that executes it.")
@click.option("--input", "input_text", metavar="JSON", help="The inline input.")
@click.option(
    "--input-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The inline input, from a file of JSON.",
)
@click.option(
    "--input-ref", default="inline", show_default=True, metavar="REF", help="Where the input is kept."
)
@click.option("--manifest", default="none", show_default=True, metavar="ID", help="What it may run with.")
@click.option("--grant", "grants", multiple=True, metavar="REF", help="Authority of the task; several times.")
@click.option(
    "--session", default="", metavar="ID", help="The session it belongs to; its own id if not given."
)
@click.option("--max-attempts", type=click.IntRange(1), default=DEFAULT_MAXIMUM_ATTEMPTS, show_default=True)
@click.option("--max-tokens", type=click.IntRange(0), default=DEFAULT_MAXIMUM_TOKENS, show_default=True)
@click.option(
    "--max-cost-micros", type=click.IntRange(0), default=DEFAULT_MAXIMUM_COST_MICROS, show_default=True
)
@click.option(
    "--delay", type=_MILLISECONDS, default="0s", metavar="DURATION", help="Not before: 90s, 5m, 2h."
)
@click.option(
    "--start-within", type=_MILLISECONDS, metavar="DURATION", help="Cancelled if not begun by then."
)
@click.option(
    "--finish-within", type=_MILLISECONDS, metavar="DURATION", help="Cancelled if not ended by then."
)
@click.option("--wait", "wait_for_end", is_flag=True, help="Return when it has ended.")
@as_json
@service_options
def create(task_id: str, *, wait_for_end: bool, as_json: bool, **options: Any) -> None:
    """Create the task TASK. Creating it again just like this changes nothing."""
    task = NewTask(
        task_id,
        driver=options["driver"],
        input=_input(options["input_text"], options["input_file"]),
        input_ref=options["input_ref"],
        manifest_hash=options["manifest"],
        grant_refs=options["grants"],
        budget=Budget(options["max_attempts"], options["max_tokens"], options["max_cost_micros"]),
        session_id=options["session"],
        delay_ms=options["delay"],
        start_within_ms=options["start_within"],
        finish_within_ms=options["finish_within"],
    )

    async def work(client: Client) -> tuple[Task, bool]:
        created, new = await client.tasks.create(task)
        return (await client.tasks.wait(task_id))[0] if wait_for_end else created, new

    shown, new = ask(options, work)
    if wait_for_end:
        _show_end(shown, as_json=as_json)
    elif as_json:
        show_json({**task_document(shown), "created": new})
    else:
        click.echo(f"{shown.id}: {'created' if new else 'was there already'}, {shown.state.value}")


@tasks.command("list", epilog=STATUS)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([each.value for each in TaskState]),
    help="Any of these.",
)
@click.option(
    "--condition",
    "conditions",
    multiple=True,
    type=click.Choice([each.value for each in Condition]),
    help="All of these, such as recovery-required.",
)
@click.option("--driver", default="", metavar="ID[@VERSION]", help="Only of this driver.")
@click.option("--session", default="", metavar="ID", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The newest so many.")
@as_json
@service_options
def list_tasks(*, as_json: bool, **options: Any) -> None:
    """List the tasks that the principal may see, the newest first."""
    driver_id, _, version = options["driver"].partition("@")
    if version and not version.isdecimal():
        raise click.UsageError(f"--driver: {options['driver']!r} is not ID or ID@VERSION")
    which = TaskFilter(
        states=[TaskState(each) for each in options["states"]],
        conditions=[Condition(each) for each in options["conditions"]],
        driver_id=driver_id,
        driver_version=int(version or 0),
        session_id=options["session"],
    )

    async def work(client: Client) -> list[Task]:
        return [task async for task in client.tasks.list(which, view=View.OWNER, limit=options["limit"])]

    found = ask(options, work)
    if as_json:
        show_json([task_document(task) for task in found])
    else:
        show_rows(TASK_COLUMNS, map(task_row, found), "there are no such tasks")


@tasks.command(epilog=STATUS)
@_TASK
@as_json
@service_options
def get(task_id: str, *, as_json: bool, **options: Any) -> None:
    """Show the task TASK."""
    shown = ask(options, lambda client: client.tasks.get(task_id))
    if as_json:
        show_json(task_document(shown))
    else:
        show_task(shown)


@tasks.command(epilog=STATUS)
@_TASK
@click.option("--reason", default="", metavar="TEXT", help="For people.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Return when it has ended.")
@as_json
@service_options
def cancel(task_id: str, reason: str, *, wait_for_end: bool, as_json: bool, **options: Any) -> None:
    """Ask for the task TASK to be cancelled. Its worker stops it and says so."""

    async def work(client: Client) -> tuple[str, Task | None]:
        status = await client.tasks.cancel(task_id, reason)
        return status.state.value, (await client.tasks.wait(task_id))[0] if wait_for_end else None

    state, ended = ask(options, work)
    state = state if ended is None else ended.state.value
    if as_json:
        show_json({"task": task_id, "state": state})
    else:
        click.echo(f"{task_id}: {state}")


@tasks.command(epilog=STATUS)
@_TASK
@click.option("--or-approval", is_flag=True, help="An approval that waits is enough.")
@click.option("--timeout", type=_MILLISECONDS, metavar="DURATION", help="Give up after that long.")
@as_json
@service_options
def wait(task_id: str, timeout: int | None, *, or_approval: bool, as_json: bool, **options: Any) -> None:
    """Wait for the task TASK to end. The exit status is 1 when it failed or was cancelled."""

    async def work(client: Client) -> tuple[Task, bool]:
        return await client.tasks.wait(task_id, or_approval=or_approval, at_most_ms=timeout)

    task, met = ask(options, work)
    if not met:
        raise click.ClickException(f"{task_id}: still {task.state.value} when the time was over")
    _show_end(task, as_json=as_json)


def _show_end(task: Task, *, as_json: bool) -> None:
    if as_json:
        show_json(task_document(task))
    else:
        place = f", result {task.result_ref}" if task.result_ref else ""
        click.echo(f"{task.id}: {task.state.value}{place}")
    if task.state in {TaskState.FAILED, TaskState.CANCELED}:
        raise click.ClickException(task.failure or task.cancel_reason or f"the task is {task.state.value}")


def _input(text: str | None, path: Path | None) -> "JsonValue | NoInput":
    if text is not None and path is not None:
        raise click.UsageError("--input and --input-file cannot be given together")
    if path is not None:
        text = path.read_text("utf-8")
    if text is None:
        return NoInput.NO_INPUT
    try:
        value: JsonValue = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"the input is not JSON: {error}") from None
    return value
