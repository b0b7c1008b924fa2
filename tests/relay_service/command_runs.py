"""Running the relay-service command inside the test's process."""

from collections.abc import Callable
from typing import TypeAlias

from click.testing import CliRunner, Result

from relay_service.cli import relay_service

Run: TypeAlias = Callable[..., Result]


def run_command(*arguments: object, text: str | None = None) -> Result:
    """Runs it with these arguments and this on standard input; it must not end in a traceback."""
    result = CliRunner().invoke(
        relay_service, [str(each) for each in arguments], text, prog_name="relay-service"
    )
    # Whatever else is raised would be a traceback.
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
