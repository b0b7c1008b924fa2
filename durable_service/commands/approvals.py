"""The approvals commands: list, show, approve, deny."""

from dataclasses import asdict
from typing import Any

import click

from durable_service.client.approvals import Approval, ApprovalDetails
from durable_service.client.client import Client
from durable_service.client.json_text import encode_json
from durable_service.commands.service_calls import (
    STATUS,
    OrderedGroup,
    as_json,
    ask,
    instant,
    service_options,
    show_fields,
    show_json,
    show_table,
)

# An id may begin with a hyphen.
_IDS_WITH_HYPHENS = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
_APPROVAL = click.argument("approval_id", metavar="APPROVAL")
_NOTE = click.option("--note", default="", metavar="TEXT", help="For the task's journal.")
_YES = click.option("--yes", is_flag=True, help="Do not ask: what it is about has been read already.")


@click.group(cls=OrderedGroup, epilog=STATUS)
def approvals() -> None:
    """See and decide what waits for the principal's word."""


@approvals.command("list", epilog=STATUS)
@click.option("--task", "task_id", default="", metavar="TASK", help="Only of this task.")
@as_json
@service_options
def list_approvals(task_id: str, *, as_json: bool, **options: Any) -> None:
    """List what waits, those that expire first in front."""

    async def work(client: Client) -> list[Approval]:
        return [approval async for approval in client.approvals.pending(task_id)]

    found = ask(options, work)
    if as_json:
        show_json([approval_document(each) for each in found])
        return
    rows = ((each.id, each.task_id, each.action_id, instant(each.expires_at_ms)) for each in found)
    show_table(("approval", "task", "action", "expires"), rows, "nothing waits for this principal")


@approvals.command(epilog=STATUS, context_settings=_IDS_WITH_HYPHENS)
@_APPROVAL
@as_json
@service_options
def show(approval_id: str, *, as_json: bool, **options: Any) -> None:
    """Show what exactly the pending APPROVAL is about. The beginning of its id is enough."""
    details = ask(options, lambda client: _find(client, approval_id))
    if as_json:
        document = approval_document(details.approval)
        document |= {
            "owner": details.owner,
            "connectorVersion": details.action.connector_version,
            "destination": details.action.destination,
            "args": details.action.args,
        }
        show_json(document)
    else:
        _show(details)


@approvals.command(epilog=STATUS, context_settings=_IDS_WITH_HYPHENS)
@_APPROVAL
@_NOTE
@_YES
@as_json
@service_options
def approve(approval_id: str, note: str, *, yes: bool, as_json: bool, **options: Any) -> None:
    """Approve the pending APPROVAL, after a look at what would be done.

    The action has to be carried out before the approval expires.
    """
    _decide(approval_id, note, options, approved=True, ask_first=not yes, as_json=as_json)


@approvals.command(epilog=STATUS, context_settings=_IDS_WITH_HYPHENS)
@_APPROVAL
@_NOTE
@_YES
@as_json
@service_options
def deny(approval_id: str, note: str, *, yes: bool, as_json: bool, **options: Any) -> None:
    """Refuse the pending APPROVAL. The action will not happen."""
    _decide(approval_id, note, options, approved=False, ask_first=not yes, as_json=as_json)


def approval_document(approval: Approval) -> dict[str, Any]:
    """Return an approval for programs."""
    return {**asdict(approval), "state": approval.state.value}


def _decide(
    approval_id: str, note: str, options: dict[str, Any], *, approved: bool, ask_first: bool, as_json: bool
) -> None:
    async def work(client: Client) -> Approval:
        # Two steps, so that the decision is bound to the hash of what the person has seen.
        details = await _find(client, approval_id)
        if ask_first:
            _show(details)
            click.confirm("Approve this?" if approved else "Refuse this?", abort=True, err=True)
        return await client.approvals.decide(details.approval, approved=approved, note=note)

    decided = ask(options, work)
    if as_json:
        show_json(approval_document(decided))
    else:
        click.echo(f"{decided.id}: {decided.state.value}")


async def _find(client: Client, beginning: str) -> ApprovalDetails:
    pending = [approval async for approval in client.approvals.pending()]
    found = [each for each in pending if each.id.startswith(beginning)]
    exact = [each for each in found if each.id == beginning]
    if not found:
        raise click.ClickException(f"{beginning}: no such approval waits for this principal")
    if len(found) > 1 and not exact:
        raise click.ClickException(
            f"{beginning}: {len(found)} approvals begin like this; write more of the id"
        )
    approval = (exact or found)[0]
    return await client.approvals.get(approval.task_id, approval.id)


def _show(details: ApprovalDetails) -> None:
    approval, action = details.approval, details.action
    show_fields(
        (
            ("approval", approval.id),
            ("task", approval.task_id),
            ("of", details.owner),
            ("action", approval.action_id),
            ("connector", action.connector_version),
            ("destination", action.destination),
            ("what", encode_json(action.args).decode()),
            ("hash", approval.prepared_hash),
            ("asked", instant(approval.created_at_ms)),
            ("expires", instant(approval.expires_at_ms)),
        )
    )
