"""Devices: whose they are, and which are cut off."""

import time
from typing import Any

import click

from relay_service.client.operator import DeviceStatus
from relay_service.commands.identity_file import read_identity_file
from relay_service.commands.operator_calls import (
    STATUS,
    OrderedGroup,
    as_json,
    ask,
    change,
    operator_options,
    show_json,
    show_table,
)

_RUNNER_ID = click.argument("runner_id")


@click.group(cls=OrderedGroup, epilog=STATUS)
def devices() -> None:
    """Look at the devices, and cut them off."""


@devices.command("list", epilog=STATUS)
@as_json
@operator_options
def list_devices(as_json: bool, **options: Any) -> None:  # noqa: FBT001 - click calls it by name
    """List the devices, with what the relay that is asked knows of each."""
    found = ask(options, lambda operator: operator.devices())
    if as_json:
        show_json(map(_fields, found))
        return
    now_ms = time.time_ns() // 1_000_000
    show_table(
        ("device", "owner", "key", "state", "jobs"),
        [
            (
                each.runner_id,
                each.owner,
                each.key_id,
                _state(each, now_ms),
                str(each.leases),
            )
            for each in found
        ],
        "no device yet: relay-daemon pair on the device, then relay-service approve CODE --owner PERSON",
    )


@devices.command(epilog=STATUS)
@_RUNNER_ID
@operator_options
def revoke(runner_id: str, **options: Any) -> None:
    """Cut the device RUNNER_ID off for good; its work goes back to the queue."""
    change(options, lambda operator: operator.revoke_device(runner_id))


@devices.command(epilog=STATUS)
@_RUNNER_ID
@click.option("--owner", required=True, metavar="PERSON", help="Whose device it is.")
@click.option(
    "--identity", required=True, metavar="FILE", help='What "relay-daemon identity" prints; - for stdin.'
)
@operator_options
def add(runner_id: str, owner: str, identity: str, **options: Any) -> None:
    """Approve a device without pairing, under the name RUNNER_ID."""
    public = read_identity_file(identity)
    change(options, lambda operator: operator.add_device(runner_id, owner, public))


def _state(device: DeviceStatus, now_ms: int) -> str:
    if device.revoked:
        return "revoked"
    if device.connected:
        return "connected"
    if device.last_seen_at_ms is None:
        return "approved"
    return f"seen {_since(device.last_seen_at_ms, now_ms)} ago"


def _since(at_ms: int, now_ms: int) -> str:
    seconds = max(0, now_ms - at_ms) // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _fields(device: DeviceStatus) -> dict[str, Any]:
    return {
        "runnerId": device.runner_id,
        "owner": device.owner,
        "keyId": device.key_id,
        "revoked": device.revoked,
        "connected": device.connected,
        "clientVersion": device.client_version,
        "lastSeenAt": device.last_seen_at_ms,
        "leases": device.leases,
    }
