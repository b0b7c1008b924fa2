"""The events command: a task's journal, and what is added to it."""

import json
from typing import Any

import click

from durable_service.client.client import Client
from durable_service.client.json_text import encode_json
from durable_service.client.record_reader import Entry, Gap
from durable_service.commands.service_calls import STATUS, as_json, ask, instant, printable, service_options


@click.command(epilog=STATUS)
@click.argument("task_id", metavar="TASK")
@click.option("--follow", "-f", is_flag=True, help="Go on as events are written, until the task has ended.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Only events after this one.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only of these types; several times.")
@as_json
@service_options
def events(
    task_id: str, after: int, types: tuple[str, ...], *, follow: bool, as_json: bool, **options: Any
) -> None:
    """Print the journal of the task TASK, an event a line."""
    show = _show_json if as_json else _show

    async def work(client: Client) -> None:
        async for entry in client.records.follow(task_id, after=after, types=types, follow=follow):
            show(entry)

    ask(options, work)


def _show(entry: Entry) -> None:
    if isinstance(entry, Gap):
        first, last = entry.after + 1, entry.earliest - 1
        click.echo(f"events {first} to {last} are no longer kept", err=True)
        return
    data = "" if entry.data is None else printable(encode_json(entry.data).decode())
    click.echo(f"{entry.sequence:>6}  {instant(entry.at_ms)}  {printable(entry.type):<22}  {data}")


def _show_json(entry: Entry) -> None:
    if isinstance(entry, Gap):
        document: dict[str, Any] = {"gap": {"after": entry.after, "earliest": entry.earliest}}
    else:
        document = {
            "sequence": entry.sequence,
            "type": entry.type,
            "at_ms": entry.at_ms,
            "attempt_id": entry.attempt_id,
            "fence": entry.fence,
            "data": entry.data,
        }
    click.echo(json.dumps(document, ensure_ascii=False))
