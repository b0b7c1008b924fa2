"""The relay-daemon command: a device at the terminal."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from relay_service.client.cli_options import (
    OneLineErrors,
    connection_options,
    fail,
    load_keys,
    log_to_terminal,
    make_connection,
    make_keys,
    print_identity,
    quiet_grpc,
    run_to_end,
    show_identity,
)
from relay_service.client.config_table import ConfigError
from relay_service.client.daemon_command import (
    check_relay,
    learned_pins,
    serve,
    service_lines,
    spool_folder,
)
from relay_service.client.daemon_config import DaemonConfig
from relay_service.client.daemon_options import (
    DEFAULT_KEYS,
    connection_of,
    device_options,
    keys_option,
    load_config,
    refuse_foreign_pairing,
)
from relay_service.client.daemon_pairing_command import default_label
from relay_service.client.daemon_pairing_command import pair as pair_at_terminal
from relay_service.client.daemon_pairing_file import Transport
from relay_service.client.daemon_services import Services
from relay_service.client.errors import RelayError
from relay_service.client.keys import Keys
from relay_service.client.offered_version import remembered_offer
from relay_service.client.prompt_log import PromptLogUnavailable
from relay_service.client.software import client_version
from service_common.clocks import SystemClock

_HELP = """Answer the prompts of sites that you consent to, on this machine.

First steps, with a relay and an Ollama server on this machine:

\b
  relay-daemon pair          (shows a code that whoever runs the relay approves)
  relay-daemon run --backend ollama --model llama3.2

With a program that reads the prompt from standard input and writes the answer to standard output:

\b
  relay-daemon run --backend command -- /usr/local/bin/answer --quiet

What a site sends never chooses a model, an address or an argument. Every prompt is logged here before it is
run.
"""
_STATUS = """\b
Exit status:
  0    ended in order, after SIGTERM or Ctrl-C
  1    refused or failed; the reason is one line on standard error
  2    a wrong option or configuration
  4    this version is too old for the relay
"""
_TOO_OLD: Final = 4
_HELP_NAMES: Final = {"help_option_names": ["-h", "--help"]}


@click.group(cls=OneLineErrors, help=_HELP, epilog=_STATUS, context_settings=_HELP_NAMES)
def relay_daemon() -> None:
    pass


@relay_daemon.command(epilog=_STATUS)
@keys_option
def keygen(keys: Path | None) -> None:
    """Make the device's keys, and print their public identity."""
    print_identity(make_keys((keys or DEFAULT_KEYS).expanduser()))


@relay_daemon.command(epilog=_STATUS, short_help="Print the device's public identity.")
@keys_option
def identity(keys: Path | None) -> None:
    """Print the device's public identity, making keys first if there are none.

    Standard output is the JSON that "relay-service projection add-device" takes.
    """
    show_identity((keys or DEFAULT_KEYS).expanduser())


@relay_daemon.command(epilog=_STATUS, short_help="Serve until SIGTERM or Ctrl-C.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@device_options
@click.option(
    "--owner",
    metavar="PERSON",
    help="Whose device this is, as the relay names them. Without it only private jobs count as the owner's.",
)
@click.option("--slots", type=click.IntRange(1, 32), metavar="N", help="Jobs at a time.  [default: 2]")
@click.option(
    "--prompt-log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where prompts are logged.  [default: prompts.jsonl beside the configuration]",
)
@click.option("--no-prompt-log", is_flag=True, help="Log no prompts.")
@click.option(
    "--trust-directory",
    is_flag=True,
    help="Serve every site that the relay says the owner consents to, not the pinned ones alone.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 3_600),
    default=20,
    show_default=True,
    metavar="SECONDS",
    help="How long running work may take to finish after SIGTERM or Ctrl-C.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say only what goes wrong.")
def run(argv: Sequence[str], **options: Any) -> None:
    """Serve. After "--" comes the program of --backend command, with its arguments."""
    log_to_terminal(verbose=not options["quiet"])
    config = load_config(argv, options)
    if not config.services:
        raise click.UsageError("nothing can answer prompts: give --backend, or --config with [[services]]")
    if not (config.pins or options["trust_directory"] or config.control_plane_key):
        raise click.UsageError(
            "no site would be served: give --site-pin with the identity of a site, or pair again when the"
            " owner consents to one"
        )
    keys = load_keys(config.keys, "relay-daemon keygen")
    refuse_foreign_pairing(config, keys.key_id)
    connection = connection_of(config, options)
    try:
        run_to_end(
            serve(
                config,
                connection,
                keys,
                trust_directory=options["trust_directory"],
                grace_seconds=options["grace"],
            )
        )
    except (ConfigError, PromptLogUnavailable) as error:
        fail(str(error), 2)
    except RelayError as error:
        if error.reason != "DAEMON_BELOW_FLOOR":
            raise
        floor = error.metadata.get("floor", "a later version")
        fail(
            f"version {client_version()} is too old for this relay, which serves {floor} and later: upgrade"
            " sealwork on this machine, and start again",
            _TOO_OLD,
        )


@relay_daemon.command(epilog=_STATUS, short_help="Show the configuration, and check services and relay.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@device_options
def status(argv: Sequence[str], **options: Any) -> None:
    """Show the configuration, whether the services answer, and whether the relay knows this device.

    Takes the options of "run". The exit status is 1 when a service or the relay does not answer.
    """
    config = load_config(argv, options)
    keys = load_keys(config.keys, "relay-daemon keygen")
    refuse_foreign_pairing(config, keys.key_id)
    for name, value in _settings(config, keys.key_id):
        click.echo(f"{name:<12} {value}")
    if not run_to_end(_check(config, options)):
        raise click.exceptions.Exit(1)


_PAIR_STATUS = """\b
Exit status:
  0    paired
  1    refused or failed; the reason is one line on standard error
  2    a wrong option
  3    denied by whoever runs the relay
  4    not approved in time
"""


@relay_daemon.command(epilog=_PAIR_STATUS, short_help="Introduce this device to a relay by a code.")
@keys_option
@connection_options
@click.option(
    "--label",
    metavar="TEXT",
    help="What whoever approves it reads, 1 to 120 characters.  [default: this machine's name]",
)
def pair(keys: Path | None, label: str | None, **options: Any) -> None:
    """Introduce this device to a relay: show a code, and wait until a person has approved it.

    Makes keys first if there are none. What the approval brings is kept beside the keys, and "run" and
    "status" need no other option about the relay. To pin sites that were consented to later, run it again.
    """
    path = (keys or DEFAULT_KEYS).expanduser()
    connection = make_connection(options["relay"], **_transport(options))
    own = Keys.load(path) if path.exists() else make_keys(path)
    run_to_end(
        pair_at_terminal(connection, Transport(**_transport(options)), own, path, label or default_label())
    )


def _transport(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("tls", "tls_ca", "plaintext")}


def _settings(config: DaemonConfig, key_id: str) -> list[tuple[str, object]]:
    offered = remembered_offer(spool_folder(config))
    return [
        ("version", client_version()),
        *([("update", f"the relay's operator offers version {offered}")] if offered else []),
        ("relay", config.relay),
        ("runner id", config.runner_id),
        ("keys", config.keys),
        ("key id", key_id),
        *(("pinned site", pin) for pin in learned_pins(config)),
        (
            "grants",
            "of the control plane, for every job" if config.control_plane_key else "none are asked for",
        ),
        ("slots", config.slots),
        ("prompt log", config.prompt_log.path or "off"),
        ("spool", spool_folder(config)),
    ]


async def _check(config: DaemonConfig, options: Mapping[str, Any]) -> bool:
    services = Services(config.services, config.defaults, os.environ, SystemClock())
    try:
        health = await services.health()
    finally:
        await services.close()
    for line in service_lines(config, health):
        click.echo(f"{'service':<12} {line}")
    try:
        keys = load_keys(config.keys, "relay-daemon keygen")
        said = await check_relay(config, connection_of(config, options), keys)
        click.echo(f"{'connection':<12} {said}")
    except RelayError as error:
        click.echo(f"{'connection':<12} {error}")
        return False
    return bool(health) and all(health.values())


def main() -> None:
    """Run the command with the arguments of this process, and end it."""
    quiet_grpc()
    relay_daemon(prog_name="relay-daemon")
