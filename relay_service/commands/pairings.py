"""Pairings: devices that wait for a person's word."""

import time
from typing import Any

import click

from relay_service.client.operator import WaitingDevice
from relay_service.commands.operator_calls import (
    STATUS,
    OrderedGroup,
    as_json,
    ask,
    operator_options,
    show_json,
    show_table,
)


@click.group(cls=OrderedGroup, epilog=STATUS)
def pairings() -> None:
    """Look at the devices that wait to be paired."""


@pairings.command("list", epilog=STATUS)
@as_json
@operator_options
def list_pairings(as_json: bool, **options: Any) -> None:  # noqa: FBT001 - click calls it by name
    """List the devices that wait. Compare a key id with what the device shows before you approve."""
    found = ask(options, lambda operator: operator.pairings())
    if as_json:
        show_json(map(_fields, found))
        return
    now_ms = time.time_ns() // 1_000_000
    show_table(
        ("code", "key", "label", "system", "version", "left"),
        [
            (
                each.user_code,
                each.key_id,
                each.label,
                each.platform,
                each.client_version,
                _left(each.expires_at_ms - now_ms),
            )
            for each in found
        ],
        "no device waits",
    )


@click.command(epilog=STATUS)
@click.argument("code")
@click.option("--owner", required=True, metavar="PERSON", help="Whose device it will be.")
@operator_options
def approve(code: str, owner: str, **options: Any) -> None:
    """Make the device that shows CODE a device of a person, and print its name."""
    runner_id = ask(options, lambda operator: operator.approve(code, owner))
    click.echo(f"device {runner_id} belongs to {owner}")


@click.command(epilog=STATUS)
@click.argument("code")
@operator_options
def deny(code: str, **options: Any) -> None:
    """Turn the device away that shows CODE."""
    ask(options, lambda operator: operator.deny(code))
    click.echo(f"the device that shows {code} is turned away")


def _left(duration_ms: int) -> str:
    seconds = max(0, duration_ms) // 1000
    return f"{seconds // 60}:{seconds % 60:02}"


def _fields(device: WaitingDevice) -> dict[str, Any]:
    return {
        "userCode": device.user_code,
        "keyId": device.key_id,
        "label": device.label,
        "platform": device.platform,
        "clientVersion": device.client_version,
        "expiresAt": device.expires_at_ms,
    }
