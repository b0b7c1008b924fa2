"""The durable-service command."""

import importlib
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import click

_PURPOSE = """Run a durable task service: long work that survives the workers that do it.

First steps on one machine:

\b
  durable-service keys new alice.json
  durable-service principals --file principals.json add alice \\
      --role submitter --role operator --tenant demo --key PUBLIC_KEY
  durable-service serve --dev --principals principals.json --store sqlite:///tasks.db

and while it serves, in another terminal:

\b
  export DURABLE_PRINCIPAL=alice DURABLE_KEY=alice.json
  durable-service tasks create report-1 --driver report@1 --input '{"day": 7}'
  durable-service events report-1 --follow
  durable-service top

Commands from "tasks" to "top" call the service that serves; "keys" and "principals" work on files alone.
"""
_STATUS = """\b
Exit status of every command:
  0  done
  1  refused or failed; the reason is one line on standard error
  2  a wrong option or setting
"""

# Loaded when they are asked for: a process that serves never loads what signs as a principal.
_COMMANDS = {
    "serve": "durable_service.commands.serve:serve",
    "check-config": "durable_service.commands.serve:check_config",
    "keys": "durable_service.commands.keys:keys",
    "principals": "durable_service.commands.principals:principals",
    "tasks": "durable_service.commands.tasks:tasks",
    "approvals": "durable_service.commands.approvals:approvals",
    "actions": "durable_service.commands.actions:actions",
    "events": "durable_service.commands.events:events",
    "top": "durable_service.commands.top:top",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(
    cls=_Commands, help=_PURPOSE, epilog=_STATUS, context_settings={"help_option_names": ["-h", "--help"]}
)
def durable_service() -> None:
    pass


@durable_service.command()
def version() -> None:
    """Print the version."""
    try:
        click.echo(f"sealwork {version_of('sealwork')}")
    except PackageNotFoundError:
        click.echo("sealwork, version unknown: it is not installed")


def main() -> None:
    """Run the command with the arguments of this process, and end it."""
    durable_service(prog_name="durable-service")
