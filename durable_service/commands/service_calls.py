"""What the commands that call a service share: where it is, as whom, and errors of one line."""

import asyncio
import contextlib
import datetime as dt
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from durable_service.client.client import Client
from durable_service.client.errors import DurableError
from durable_service.client.principal_key import PrincipalKey, PrincipalKeyError
from durable_service.client.record_reader import ContentError
from service_common.connection import Connection, is_address

Command = TypeVar("Command", bound=Callable[..., Any])
Answer = TypeVar("Answer")

DEFAULT_ADDRESS: Final = "127.0.0.1:7434"
STATUS: Final = """\b
Exit status:
  0  done
  1  refused or failed; the reason is one line on standard error
  2  a wrong option
"""
INTERRUPTED: Final = 130

_FIRST_COLUMN_CHARACTERS: Final = 24
_UNKNOWN_KEY: Final = (
    'the service does not know this key as that of "{name}": add it with durable-service principals add '
    "{name} --key PUBLIC_KEY; durable-service keys show FILE prints the public key"
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        del ctx
        return list(self.commands)


def service_options(command: Command) -> Command:
    """Add the options that say which service, and as whom."""
    for option in reversed(
        (
            click.option(
                "--address",
                metavar="ADDRESS",
                envvar="DURABLE_ADDRESS",
                default=DEFAULT_ADDRESS,
                help=f"The service, HOST:PORT or unix:PATH.  [DURABLE_ADDRESS; default: {DEFAULT_ADDRESS}]",
            ),
            click.option(
                "--principal",
                metavar="ID",
                envvar="DURABLE_PRINCIPAL",
                required=True,
                help="As whom to call, as the service's principals name it.  [DURABLE_PRINCIPAL]",
            ),
            click.option(
                "--key",
                metavar="FILE",
                type=click.Path(dir_okay=False, path_type=Path),
                envvar="DURABLE_KEY",
                help="The principal's key file; not needed with a client certificate.  [DURABLE_KEY]",
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
                "--tls-certificate",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                metavar="FILE",
                help="Client certificate that names the principal, PEM; use TLS.",
            ),
            click.option(
                "--tls-key",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                metavar="FILE",
                help="Private key of the client certificate, PEM.",
            ),
            click.option("--plaintext", is_flag=True, help="Connect without TLS to another machine."),
        )
    ):
        command = option(command)
    return command


def ask(options: dict[str, Any], work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Return what the work brings from the service that the options name.

    Args:
        options: Those of `service_options`.
        work: Makes the calls.

    Raises:
        click.ClickException: The service refuses or does not answer, or the key cannot be used.
    """
    # Keeps the library's own lines off the terminal; what they say comes as an error of the call too.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    connection = _connection(options)
    with one_line(options["principal"]):
        key = None if options["key"] is None else PrincipalKey.load(options["key"].expanduser())
        return _run(_within(connection, options["principal"], key, work))


@contextlib.contextmanager
def one_line(name: str) -> Iterator[None]:
    """Turn what can go wrong into one line.

    Raises:
        click.ClickException: Something went wrong.
    """
    try:
        yield
    except DurableError as error:
        text = _UNKNOWN_KEY.format(name=name) if error.reason == "BAD_SIGNATURE" else str(error)
        raise click.ClickException(" ".join(text.split())) from None
    except (PrincipalKeyError, ContentError) as error:
        raise click.ClickException(str(error)) from None
    except FileNotFoundError as error:
        raise click.ClickException(
            f"{error.filename}: there is no key; make one with: durable-service keys new FILE"
        ) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{place}{error.strerror or error}") from None


def show_table(headers: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> None:
    """Print a table, or a line when it has no rows."""
    cells = [tuple(row) for row in rows]
    if not cells:
        click.echo(nothing)
        return
    table = Table(*headers, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.overflow = "fold"
    # The first column is what the next command is given, copied from here.
    table.columns[0].min_width = min(max(len(row[0]) for row in cells), _FIRST_COLUMN_CHARACTERS)
    for row in cells:
        # Ids may hold square brackets, which rich reads as markup.
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)


def show_fields(fields: Iterable[tuple[str, str | None]]) -> None:
    """Print names and values below each other; those without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields:
        if value:
            table.add_row(name, escape(printable(value)))
    Console().print(table)


def show_json(value: object) -> None:
    """Print a value for programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def instant(at_ms: int | None) -> str:
    """Return an instant (epoch milliseconds) as people write it, in local time."""
    if at_ms is None:
        return ""
    moment = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def printable(text: str) -> str:
    """Return the text without what would move a terminal's cursor."""
    return "".join(each if each.isprintable() or each == "\n" else "�" for each in text)


def span(milliseconds: int | None) -> str:
    """Return a length of time as people read it, with one or two units."""
    if milliseconds is None:
        return ""
    seconds = milliseconds // 1000
    for unit, size, smaller, smaller_size in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if seconds >= size:
            rest = seconds % size // smaller_size
            return f"{seconds // size}{unit} {rest}{smaller}" if rest else f"{seconds // size}{unit}"
    return f"{seconds}s" if seconds else f"{milliseconds}ms"


def _connection(options: dict[str, Any]) -> Connection:
    address, tls, tls_ca = options["address"], options["tls"], options["tls_ca"]
    certificate, private_key = options["tls_certificate"], options["tls_key"]
    if (certificate is None) != (private_key is None):
        raise click.UsageError("--tls-certificate and --tls-key go together")
    if options["key"] is None and certificate is None:
        raise click.UsageError("say who calls: --key FILE (or DURABLE_KEY), or --tls-certificate FILE")
    tls = tls or certificate is not None
    if not is_address(address):
        raise click.UsageError(f"--address: {address!r} is not HOST:PORT or unix:PATH")
    if options["plaintext"] and (tls or tls_ca):
        raise click.UsageError("--plaintext cannot be given together with --tls or --tls-ca")
    if tls or tls_ca is not None:
        content = [None if path is None else path.read_bytes() for path in (tls_ca, certificate, private_key)]
        return Connection.with_tls(address, content[0], certificate=content[1], private_key=content[2])
    connection = Connection(address)
    if not connection.is_local and not options["plaintext"]:
        raise click.UsageError(f"{address} is another machine: add --tls, or --plaintext to go without")
    return connection


async def _within(
    connection: Connection,
    principal: str,
    key: PrincipalKey | None,
    work: Callable[[Client], Awaitable[Answer]],
) -> Answer:
    try:
        client = Client(connection, principal_id=principal, key=key)
    except ValueError as error:
        raise click.UsageError(f"--principal: {error}") from None
    async with client:
        return await work(client)


def _run(work: Coroutine[Any, Any, Answer]) -> Answer:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
