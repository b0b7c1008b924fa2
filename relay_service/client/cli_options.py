"""What the commands of both parties share: options, key files, and errors of one line."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
import grpc
import structlog

from relay_service.client.connection import Connection, is_address
from relay_service.client.errors import (
    JobEndedError,
    JobFailedError,
    RelayError,
    ResultRefusedError,
    SiteClosedError,
)
from relay_service.client.key_file import KeyFileError
from relay_service.client.keys import Keys
from relay_service.client.ledger import LedgerError
from relay_service.client.pins import PinError
from relay_service.client.plaintext_fields import PayloadError
from relay_service.client.spool import SpoolError

Command = TypeVar("Command", bound=Callable[..., Any])
Answer = TypeVar("Answer")

DEFAULT_RELAY: Final = "127.0.0.1:7433"

_EXPECTED: Final = (
    JobEndedError,
    JobFailedError,
    KeyFileError,
    LedgerError,
    PayloadError,
    PinError,
    RelayError,
    ResultRefusedError,
    SiteClosedError,
    SpoolError,
)
_INTERRUPTED: Final = 130


def connection_options(command: Command) -> Command:
    """Add the options that say where the relay is."""
    for option in reversed(
        (
            click.option(
                "--relay",
                metavar="ADDRESS",
                help=f"The relay, HOST:PORT or unix:PATH.  [default: {DEFAULT_RELAY}]",
            ),
            click.option(
                "--tls", is_flag=True, help="Use TLS, with the certificates that this system trusts."
            ),
            click.option(
                "--tls-ca",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                metavar="FILE",
                help="Use TLS, and trust the certificates in this PEM file alone.",
            ),
            click.option(
                "--plaintext",
                is_flag=True,
                help="Connect without TLS to another machine. Work stays sealed; who asks whom does not.",
            ),
        )
    ):
        command = option(command)
    return command


def make_connection(relay: str | None, *, tls: bool, tls_ca: Path | None, plaintext: bool) -> Connection:
    """Return the connection that the options ask for.

    Raises:
        click.UsageError: They cannot be followed.
    """
    address = relay or DEFAULT_RELAY
    if not is_address(address):
        raise click.UsageError(f"--relay: {address!r} is not HOST:PORT or unix:PATH")
    if plaintext and (tls or tls_ca):
        raise click.UsageError("--plaintext cannot be given together with --tls or --tls-ca")
    if tls or tls_ca is not None:
        roots = None if tls_ca is None else tls_ca.read_bytes()
        return Connection(address, grpc.ssl_channel_credentials(roots))
    connection = Connection(address)
    if not connection.is_local and not plaintext:
        raise click.UsageError(f"{address} is another machine: add --tls, or --plaintext to go without")
    return connection


def load_keys(path: Path, command: str) -> Keys:
    """Return the keys of a file.

    Args:
        path: The file.
        command: What makes one, for the message when there is none.

    Raises:
        click.ClickException: There is none.
        KeyFileError: It must not be used.
    """
    try:
        return Keys.load(path)
    except FileNotFoundError:
        raise click.ClickException(f"{path}: there are no keys; make them with: {command}") from None


def make_keys(path: Path) -> Keys:
    """Make new keys in a file that must not be there yet.

    Raises:
        click.ClickException: There is a file, or none can be written.
    """
    keys = Keys.generate()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        keys.save(path)
    except FileExistsError:
        raise click.ClickException(f"{path}: there are keys already; they were left as they are") from None
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None
    click.echo(f"new keys in {path}, to be kept secret", err=True)
    return keys


def print_identity(keys: Keys) -> None:
    """Print what others may know: the identity for programs, its key id for people."""
    click.echo(json.dumps(keys.public.to_json(), indent=2))
    click.echo(f"key id {keys.key_id}", err=True)


def show_identity(path: Path) -> None:
    """Print the identity of a key file, made now if there is none."""
    print_identity(Keys.load(path) if path.exists() else make_keys(path))


def run_to_end(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run asynchronous work to its end.

    Raises:
        click.exceptions.Exit: Interrupted by Ctrl-C.
    """
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(_INTERRUPTED) from None


class OneLineErrors(click.Group):
    """A group whose commands end with one line that says what is wrong, and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except _EXPECTED as error:
            raise click.ClickException(_one_line(error)) from None
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{name}{error.strerror or error}") from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which a newcomer needs them."""
        del ctx
        return list(self.commands)


def log_to_terminal(*, verbose: bool) -> None:
    """Write what happens to standard error, a line each."""
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("sealwork").setLevel(level)
    # Standard output is for answers alone; structlog would write there.
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def quiet_grpc() -> None:
    """Keep the library's own lines off the terminal; what they say comes as an error of the call too."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def fail(message: str, status: int = 1) -> NoReturn:
    """End the command with a line and a status."""
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(status)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
