"""What the commands that call a relay share: its address, the operator's key, and errors of one line."""

import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from relay_service.client.cli_options import (
    connection_options,
    load_keys,
    make_connection,
    quiet_grpc,
    run_to_end,
)
from relay_service.client.errors import RelayError
from relay_service.client.key_file import KeyFileError
from relay_service.client.operator import DEFAULT_NAME, Changed, Operator

Command = TypeVar("Command", bound=Callable[..., Any])
Answer = TypeVar("Answer")

STATUS: Final = """\b
Exit status:
  0  done, or nothing had to be changed
  1  refused or failed; the reason is one line on standard error
  2  a wrong option
"""
DEFAULT_KEY: Final = Path("~/.sealwork/operator-keys.json")
# A code, and a name that pairing has made, stay in one piece on a terminal of 80 columns.
_WHOLE_CHARACTERS: Final = 20

_WHERE_KEYS_COME_FROM: Final = (
    "relay-service init FOLDER; or say where they are: export RELAY_OPERATOR_KEY=FOLDER/operator-keys.json"
)
_UNKNOWN_KEY: Final = (
    'the relay does not know this key as that of "{name}": start it with --operator-identity and the public '
    "half that was made with the key"
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        del ctx
        return list(self.commands)


def operator_options(command: Command) -> Command:
    """Add the options that say which relay, and as whom; they are passed as `access`."""
    command = click.option(
        "--operator-name",
        default=DEFAULT_NAME,
        show_default=True,
        metavar="NAME",
        help="The name by which the relay knows the key.",
    )(command)
    command = click.option(
        "--operator-key",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="RELAY_OPERATOR_KEY",
        default=DEFAULT_KEY,
        metavar="FILE",
        help=f"The operator's key file.  [RELAY_OPERATOR_KEY; default: {DEFAULT_KEY}]",
    )(command)
    return connection_options(command)


def ask(options: dict[str, Any], work: Callable[[Operator], Awaitable[Answer]]) -> Answer:
    """Return what the work brings from the relay that the options name.

    Args:
        options: Those of `operator_options`.
        work: Makes the calls.

    Raises:
        click.ClickException: The relay refuses or does not answer, or the key cannot be used.
    """
    quiet_grpc()
    names = ("relay", "tls", "tls_ca", "plaintext")
    connection = make_connection(**{name: options[name] for name in names})
    with _one_line(options["operator_name"]):
        keys = load_keys(options["operator_key"].expanduser(), _WHERE_KEYS_COME_FROM)
        operator = Operator(connection, keys=keys, name=options["operator_name"])
        return run_to_end(_within(operator, work))


def change(options: dict[str, Any], work: Callable[[Operator], Awaitable[Changed]]) -> None:
    """Have a change made and say what came of it."""
    changed = ask(options, work)
    nothing = "" if changed.changed else "nothing to change: "
    click.echo(f"revision {changed.revision}: {nothing}{changed.summary}")


def show_table(headers: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> None:
    """Print a table, or a line when it has no rows."""
    cells = [tuple(row) for row in rows]
    table = Table(*headers, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.overflow = "fold"
        # People compare it with what they see elsewhere.
        column.no_wrap = column.header == "key"
    # The first column is what the next command is given, copied from here.
    table.columns[0].min_width = min(max((len(row[0]) for row in cells), default=0), _WHOLE_CHARACTERS)
    for row in cells:
        # Ids may hold square brackets, which rich reads as markup.
        table.add_row(*(escape(cell) for cell in row))
    if table.row_count:
        Console().print(table)
    else:
        click.echo(nothing)


def show_json(rows: Iterable[dict[str, Any]]) -> None:
    """Print a list of objects for programs."""
    click.echo(json.dumps(list(rows), indent=2, ensure_ascii=False))


async def _within(operator: Operator, work: Callable[[Operator], Awaitable[Answer]]) -> Answer:
    async with operator:
        return await work(operator)


@contextlib.contextmanager
def _one_line(name: str) -> Iterator[None]:
    try:
        yield
    except RelayError as error:
        text = _UNKNOWN_KEY.format(name=name) if error.reason == "BAD_SIGNATURE" else _words(error)
        raise click.ClickException(text) from None
    except KeyFileError as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise click.UsageError(f"--operator-name: {error}") from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{place}{error.strerror or error}") from None


def _words(error: RelayError) -> str:
    # These say themselves what to do; others come with an advice.
    if error.reason.startswith(("PROJECTION_", "PAIRING", "FIELD_INVALID")):
        return " ".join(error.message.split())
    return " ".join(str(error).split())
