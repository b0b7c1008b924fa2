"""The top command: what a service does, as it does it."""

from dataclasses import asdict
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from durable_service.client.client import Client
from durable_service.client.operations import Stats, UnknownAction
from durable_service.commands.service_calls import (
    STATUS,
    as_json,
    ask,
    instant,
    service_options,
    show_json,
    span,
)
from durable_service.core.states import TaskState
from service_common.durations import Duration

_UNKNOWN_SHOWN: Final = 10


@click.command(epilog=STATUS)
@click.option("--once", is_flag=True, help="Print once, and end.")
@click.option(
    "--every",
    type=Duration(milliseconds=True),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="Time between two looks, 200ms to 15s.",
)
@as_json
@service_options
def top(every: int, *, once: bool, as_json: bool, **options: Any) -> None:
    """Show tasks, leases, approvals and open outcomes of the principal's tenant. For operators."""
    if as_json or once:
        stats, unknown = ask(options, _look)
        if as_json:
            show_json(stats_document(stats, unknown))
        else:
            Console().print(_screen(stats, unknown))
        return

    async def work(client: Client) -> None:
        with Live(console=Console(), auto_refresh=False, screen=True) as live:
            async for stats in client.operations.watch_stats(every):
                live.update(_screen(stats, await _unknown(client, stats)), refresh=True)

    ask(options, work)


async def _look(client: Client) -> tuple[Stats, list[UnknownAction]]:
    stats = await client.operations.stats()
    return stats, await _unknown(client, stats)


async def _unknown(client: Client, stats: Stats) -> list[UnknownAction]:
    found: list[UnknownAction] = []
    if stats.unknown_actions:
        async for each in client.operations.unknown_actions():
            found.append(each)
            if len(found) == _UNKNOWN_SHOWN:
                break
    return found


def stats_document(stats: Stats, unknown: list[UnknownAction]) -> dict[str, Any]:
    """Return the counts for programs."""
    document = asdict(stats)
    document["tasks"] = {state.value: count for state, count in stats.tasks.items()}
    document["oldest_unknown"] = [
        {"task": each.action.task_id, "action": each.action.id, "since_ms": each.since_ms} for each in unknown
    ]
    return document


def _screen(stats: Stats, unknown: list[UnknownAction]) -> Group:
    head = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    kept = "survives a restart" if stats.durable else "is lost with a restart"
    rows = (
        ("service", f"{stats.server_instance}, {stats.version}, up {span(stats.uptime_ms)}"),
        ("store", f"{stats.store}; what it holds {kept}"),
        ("connected", f"workers {stats.worker_sessions}, watches {stats.watches}"),
        ("leases", str(stats.live_leases)),
        ("claimable", _count(stats.claimable_tasks, stats.oldest_claimable_ms)),
        ("approvals pending", _count(stats.pending_approvals, stats.oldest_pending_approval_ms)),
        ("outcomes unknown", _count(stats.unknown_actions, stats.oldest_unknown_ms)),
    )
    for name, value in rows:
        head.add_row(name, escape(value))
    tasks = Table("state", "tasks", box=SIMPLE_HEAD, pad_edge=False)
    for state in TaskState:
        tasks.add_row(state.value, str(stats.tasks.get(state, 0)))
    return Group(head, tasks, _unknown_table(unknown)) if unknown else Group(head, tasks)


def _unknown_table(unknown: list[UnknownAction]) -> Table:
    table = Table("task", "action of unknown outcome", "connector", "since", box=SIMPLE_HEAD, pad_edge=False)
    for each in unknown:
        action = each.action
        cells = (action.task_id, action.id, action.connector_version, instant(each.since_ms))
        table.add_row(*map(escape, cells))
    return table


def _count(number: int, oldest_ms: int | None) -> str:
    return str(number) if oldest_ms is None or not number else f"{number}, the oldest for {span(oldest_ms)}"
