"""The relay-daemon command: a device at the terminal."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from relay_service.client.cli_options import (
    DEFAULT_RELAY,
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
from relay_service.client.daemon_command import check_relay, serve, service_lines, spool_folder
from relay_service.client.daemon_config import DaemonConfig, load_daemon_config
from relay_service.client.daemon_services import Services
from relay_service.client.errors import RelayError
from relay_service.client.prompt_log import PromptLogUnavailable
from relay_service.core.identity import PublicIdentity

_DEFAULT_KEYS: Final = Path("~/.sealwork/keys.json")
_BACKENDS: Final = (
    "openai-http",
    "ollama",
    "llamacpp",
    "vllm",
    "lmstudio",
    "mlx",
    "jan",
    "localai",
    "command",
)

_HELP = """Lend this machine to sites that you consent to: it answers their prompts, and only its owner sees them.

First steps, with a relay and an Ollama server on this machine:

\b
  relay-daemon identity > device.json      (give it to whoever runs the relay)
  relay-daemon run --runner-id laptop --owner alice --site-pin site.json \\
      --backend ollama --model llama3.2

With a program that reads the prompt from standard input and writes the answer to standard output:

\b
  relay-daemon run --runner-id laptop --owner alice --site-pin site.json \\
      --backend command -- /usr/local/bin/answer --quiet

What a site sends never chooses a model, an address or an argument. Every prompt is logged here before it is run.
"""
_STATUS = """\b
Exit status:
  0    ended in order, after SIGTERM or Ctrl-C
  1    refused or failed; the reason is one line on standard error
  2    a wrong option or configuration
"""
_HELP_NAMES: Final = {"help_option_names": ["-h", "--help"]}


def _keys_option(command: Any) -> Any:
    return click.option(
        "--keys",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help=f"The device's key file.  [default: {_DEFAULT_KEYS}]",
    )(command)


def _device_options(command: Any) -> Any:
    options = (
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="A TOML file with everything below; options go before it.",
        ),
        click.option("--runner-id", metavar="ID", help="This device's id at the relay."),
        click.option(
            "--site-pin",
            "site_pins",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="A site to serve: what its identity command printed. May be repeated.",
        ),
        click.option("--backend", type=click.Choice(_BACKENDS), help="What answers the prompts."),
        click.option("--base-url", metavar="URL", help="Where the back end is, if not at its usual place."),
        click.option("--model", metavar="NAME", help="The model; nothing but this chooses it."),
        click.option(
            "--api-key-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="A file with the back end's API key.",
        ),
        click.option(
            "--offer",
            type=click.Choice(["private", "team"]),
            help="Serve the owner alone, or also people whom the owner admits.  [default: private]",
        ),
        _keys_option,
        connection_options,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(cls=OneLineErrors, help=_HELP, epilog=_STATUS, context_settings=_HELP_NAMES)
def relay_daemon() -> None:
    pass


@relay_daemon.command(epilog=_STATUS)
@_keys_option
def keygen(keys: Path | None) -> None:
    """Make the device's keys, and print their public identity."""
    print_identity(make_keys((keys or _DEFAULT_KEYS).expanduser()))


@relay_daemon.command(epilog=_STATUS)
@_keys_option
def identity(keys: Path | None) -> None:
    """Print the device's public identity, making keys first if there are none.

    Standard output is the JSON that "relay-service projection add-device" takes.
    """
    show_identity((keys or _DEFAULT_KEYS).expanduser())


@relay_daemon.command(epilog=_STATUS)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@_device_options
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
    config = _load(argv, options)
    if not config.services:
        raise click.UsageError("nothing can answer prompts: give --backend, or --config with [[services]]")
    if not config.pins and not options["trust_directory"]:
        raise click.UsageError("no site would be served: give --site-pin with the identity of a site")
    keys = load_keys(config.keys, "relay-daemon keygen")
    connection = _connection(config, options)
    try:
        run_to_end(
            serve(
                config,
                connection,
                keys,
                owner=options["owner"],
                trust_directory=options["trust_directory"],
                grace_seconds=options["grace"],
            )
        )
    except (ConfigError, PromptLogUnavailable) as error:
        fail(str(error), 2)


@relay_daemon.command(epilog=_STATUS)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@_device_options
def status(argv: Sequence[str], **options: Any) -> None:
    """Show the configuration, whether the services answer, and whether the relay knows this device.

    Takes the options of "run". The exit status is 1 when a service or the relay does not answer.
    """
    config = _load(argv, options)
    keys = load_keys(config.keys, "relay-daemon keygen")
    for name, value in _settings(config, keys.key_id):
        click.echo(f"{name:<12} {value}")
    if not run_to_end(_check(config, options)):
        raise click.exceptions.Exit(1)


@relay_daemon.command()
def pair() -> None:
    """Not offered by this version: devices are added by whoever runs the relay."""
    fail(
        "pairing by code is not offered by this version of the relay; give what 'relay-daemon identity' prints"
        " to whoever runs it, for 'relay-service projection add-device'",
        2,
    )


def _load(argv: Sequence[str], options: Mapping[str, Any]) -> DaemonConfig:
    try:
        return load_daemon_config(options["config"], _overlay(argv, options))
    except ConfigError as error:
        fail(str(error), 2)


def _overlay(argv: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the options as the configuration spells them; None stands for one that was not given."""
    keys: Path | None = options["keys"]
    relay = options["relay"] or (DEFAULT_RELAY if options["config"] is None else None)
    log: dict[str, object] | None = None
    if options.get("no_prompt_log"):
        log = {"enabled": False}
    elif options.get("prompt_log") is not None:
        log = {"path": str(options["prompt_log"].absolute())}
    return {
        "relay": relay,
        "runner_id": options["runner_id"],
        "keys": None if keys is None else str(keys.expanduser().absolute()),
        "pins": _pins(options["site_pins"]) or None,
        "services": _service(argv, options),
        "slots": options.get("slots"),
        "prompt_log": log,
    }


def _service(argv: Sequence[str], options: Mapping[str, Any]) -> list[dict[str, object]] | None:
    backend = options["backend"]
    if backend is None:
        for name in ("base_url", "model", "api_key_file", "offer"):
            if options[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --backend")
        if argv:
            raise click.UsageError("a program after -- needs --backend command")
        return None
    given = {
        "service": backend,
        "backend": backend,
        "model": options["model"] or ("command" if backend == "command" else None),
        "base_url": options["base_url"],
        "api_key_file": None if options["api_key_file"] is None else str(options["api_key_file"].absolute()),
        "offer_scope": options["offer"],
        "argv": list(argv) or None,
    }
    if given["model"] is None:
        raise click.UsageError("--model is missing: the name of the model that answers")
    return [{key: value for key, value in given.items() if value is not None}]


def _pins(files: Sequence[Path]) -> dict[str, object]:
    pins: dict[str, object] = {}
    for file in files:
        try:
            public = PublicIdentity.from_json(json.loads(file.read_bytes()))
        except ValueError as error:
            fail(f"{file}: not a public identity, as 'relay-site identity' prints it: {error}", 2)
        pins[public.key_id] = public.to_json()
    return pins


def _connection(config: DaemonConfig, options: Mapping[str, Any]) -> Any:
    return make_connection(
        config.relay, tls=options["tls"], tls_ca=options["tls_ca"], plaintext=options["plaintext"]
    )


def _settings(config: DaemonConfig, key_id: str) -> list[tuple[str, object]]:
    return [
        ("relay", config.relay),
        ("runner id", config.runner_id),
        ("keys", config.keys),
        ("key id", key_id),
        *(("pinned site", pin) for pin in sorted(config.pins)),
        ("slots", config.slots),
        ("prompt log", config.prompt_log.path or "off"),
        ("spool", spool_folder(config)),
    ]


async def _check(config: DaemonConfig, options: Mapping[str, Any]) -> bool:
    import os

    from service_common.clocks import SystemClock

    services = Services(config.services, config.defaults, os.environ, SystemClock())
    try:
        health = await services.health()
    finally:
        await services.close()
    for line in service_lines(config, health):
        click.echo(f"{'service':<12} {line}")
    try:
        keys = load_keys(config.keys, "relay-daemon keygen")
        click.echo(f"{'connection':<12} {await check_relay(config, _connection(config, options), keys)}")
    except RelayError as error:
        click.echo(f"{'connection':<12} {error}")
        return False
    return bool(health) and all(health.values())


def main() -> None:
    """Run the command with the arguments of this process, and end it."""
    quiet_grpc()
    relay_daemon(prog_name="relay-daemon")
