"""The actions commands: what a task does to the outside, and settling what nobody knows."""

from typing import Any

import click

from durable_service.client.actions import Action
from durable_service.client.client import Client
from durable_service.client.connectors.base import Absent, Finding, Found, Unsettled
from durable_service.client.json_text import encode_json
from durable_service.client.operations import UnknownAction
from durable_service.client.recovery import NotClaimed, settle_action
from durable_service.commands.service_calls import (
    STATUS,
    OrderedGroup,
    as_json,
    ask,
    instant,
    printable,
    service_options,
    show_json,
    show_table,
)

_TASK = click.argument("task_id", metavar="TASK")


@click.group(cls=OrderedGroup, epilog=STATUS)
def actions() -> None:
    """See the outside effects of tasks, and settle those of unknown outcome."""


@actions.command("list", epilog=STATUS)
@_TASK
@as_json
@service_options
def list_actions(task_id: str, *, as_json: bool, **options: Any) -> None:
    """List the actions of the task TASK."""

    async def work(client: Client) -> list[Action]:
        return [action async for action in client.tasks.actions(task_id, include_args=True)]

    found = ask(options, work)
    if as_json:
        show_json([action_document(each) for each in found])
        return
    rows = (
        (
            each.id,
            _state(each),
            each.destination,
            printable(encode_json(each.args).decode()),
            each.result_ref or "",
        )
        for each in found
    )
    show_table(("action", "state", "destination", "what", "result"), rows, "the task has no actions")


@actions.command(epilog=STATUS)
@as_json
@service_options
def unknown(*, as_json: bool, **options: Any) -> None:
    """List actions of unknown outcome in all tasks, those that wait longest first. For operators."""

    async def work(client: Client) -> list[UnknownAction]:
        return [each async for each in client.operations.unknown_actions()]

    found = ask(options, work)
    if as_json:
        show_json([{**action_document(each.action), "since_ms": each.since_ms} for each in found])
        return
    rows = (
        (each.action.task_id, each.action.id, each.action.connector_version, instant(each.since_ms))
        for each in found
    )
    show_table(("task", "action", "connector", "since"), rows, "every outcome is known")


@actions.command(epilog=STATUS)
@_TASK
@click.argument("action_id", metavar="ACTION")
@click.option(
    "--happened", "result_ref", metavar="RESULT", help="It happened; RESULT is where its result is kept."
)
@click.option(
    "--absent",
    is_flag=True,
    help="It did not happen, and no request for it can arrive any more. It may be sent again.",
)
@click.option("--still-unknown", is_flag=True, help="It was looked for in vain; keep the evidence.")
@click.option("--evidence", required=True, metavar="REF", help="What proves it; kept in the task's journal.")
@as_json
@service_options
def settle(task_id: str, action_id: str, *, as_json: bool, **options: Any) -> None:
    """Settle the unknown outcome of ACTION of the task TASK by evidence. The task goes on by itself.

    That nothing is found at this moment is no proof of absence: the request may still be on its way.
    """
    finding = _finding(options)
    outcome = ask(options, lambda client: settle_action(client, task_id, action_id, finding))
    if isinstance(outcome, NotClaimed):
        raise click.ClickException(f"{task_id}: {_OBSTACLES.get(outcome.reason, outcome.reason)}")
    if outcome is None:
        raise click.ClickException(f"{action_id}: is no action of {task_id} whose outcome is unknown")
    if as_json:
        show_json(action_document(outcome))
    else:
        click.echo(f"{action_id}: {_state(outcome)}")


_OBSTACLES = {
    "leased": "a worker holds it now; try again when its lease is over",
    "nothing-to-recover": "every outcome is known",
    "terminal": "it has ended",
}


def action_document(action: Action) -> dict[str, Any]:
    """Return an action for programs; what is not known is left out."""
    document: dict[str, Any] = {
        "task": action.task_id,
        "action": action.id,
        "state": _state(action),
        "connector_version": action.connector_version,
        "destination": action.destination,
        "prepared_hash": action.prepared_hash,
        "idempotency_key": action.idempotency_key,
        "approval": action.approval_id,
        "result_ref": action.result_ref,
        "evidence_ref": action.evidence_ref,
    }
    if action.args_json:
        document["args"] = action.args
    return {name: value for name, value in document.items() if value is not None}


def _finding(options: dict[str, Any]) -> Finding:
    evidence: str = options.pop("evidence")
    result_ref, absent = options.pop("result_ref"), options.pop("absent")
    still_unknown = options.pop("still_unknown")
    if (result_ref is not None) + absent + still_unknown != 1:
        raise click.UsageError("say one of --happened RESULT, --absent and --still-unknown")
    if result_ref is not None:
        return Found(result_ref, evidence)
    return Absent(evidence) if absent else Unsettled(evidence)


def _state(action: Action) -> str:
    return "" if action.state is None else action.state.value
