"""The options of the relay-daemon command, and the configuration that they make."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from relay_service.client.cli_options import DEFAULT_RELAY, connection_options, fail, make_connection
from relay_service.client.config_table import ConfigError
from relay_service.client.connection import Connection
from relay_service.client.daemon_config import DaemonConfig, load_daemon_config
from relay_service.client.daemon_pairing_file import Transport, load_pairing
from relay_service.core.identity import PublicIdentity

DEFAULT_KEYS: Final = Path("~/.sealwork/keys.json")

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


def keys_option(command: Any) -> Any:
    """Add the option that names the key file."""
    return click.option(
        "--keys",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help=f"The device's key file.  [default: {DEFAULT_KEYS}]",
    )(command)


def device_options(command: Any) -> Any:
    """Add the options that say what this device is and does."""
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
        keys_option,
        connection_options,
    )
    for option in reversed(options):
        command = option(command)
    return command


def load_config(argv: Sequence[str], options: Mapping[str, Any]) -> DaemonConfig:
    """Return the configuration that the options and their file make.

    Raises:
        click.UsageError: The options contradict each other or lack something.
        click.exceptions.Exit: The file cannot be used; the reason has been printed.
    """
    try:
        paired = options["config"] is None and _is_paired(options)
        if options["config"] is None and options["runner_id"] is None and not paired:
            raise click.UsageError(
                "--runner-id is missing: this device's id at the relay; or pair it: relay-daemon pair"
            )
        return load_daemon_config(options["config"], _overlay(argv, options, paired=paired))
    except ConfigError as error:
        fail(str(error), 2)


def refuse_foreign_pairing(config: DaemonConfig, key_id: str) -> None:
    """End the command if the device goes by a pairing of other keys, which no relay would believe.

    Raises:
        click.exceptions.Exit: It does; the reason has been printed.
    """
    kept = load_pairing(config.keys)
    if kept is not None and kept.key_id != key_id and kept.settings["runner_id"] == config.runner_id:
        fail(f"{config.keys}: has other keys than those that were paired; pair again: relay-daemon pair", 2)


def _is_paired(options: Mapping[str, Any]) -> bool:
    """Tell whether the pairing of the keys is about the device that the options mean."""
    kept = load_pairing((options["keys"] or DEFAULT_KEYS).expanduser())
    return kept is not None and options["runner_id"] in (None, kept.settings["runner_id"])


def _overlay(argv: Sequence[str], options: Mapping[str, Any], *, paired: bool) -> Mapping[str, object]:
    """Return the options as the configuration spells them; None stands for one that was not given."""
    keys: Path | None = options["keys"]
    relay = options["relay"] or (DEFAULT_RELAY if options["config"] is None and not paired else None)
    log: dict[str, object] | None = None
    if options.get("no_prompt_log"):
        log = {"enabled": False}
    elif options.get("prompt_log") is not None:
        log = {"path": str(options["prompt_log"].absolute())}
    return {
        "relay": relay,
        "runner_id": options["runner_id"],
        "owner": options.get("owner"),
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


def connection_of(config: DaemonConfig, options: Mapping[str, Any]) -> Connection:
    """Return the connection to the configured relay.

    Raises:
        click.UsageError: It would be plaintext to another machine.
    """
    transport = Transport(tls=options["tls"], tls_ca=options["tls_ca"], plaintext=options["plaintext"])
    if transport == Transport():
        kept = load_pairing(config.keys)
        if kept is not None and kept.settings["relay"] == config.relay:
            transport = kept.transport
    return make_connection(
        config.relay, tls=transport.tls, tls_ca=transport.tls_ca, plaintext=transport.plaintext
    )
