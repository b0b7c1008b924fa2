"""The durable-service command."""

import click

from service_common.command_group import CommandGroup

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

Commands from "tasks" to "top" call the service that serves; "keys" and "principals" work on
files alone, and "migrate" on a store.
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
    "migrate": "durable_service.commands.migrate:migrate",
    "keys": "durable_service.commands.keys:keys",
    "principals": "durable_service.commands.principals:principals",
    "tasks": "durable_service.commands.tasks:tasks",
    "approvals": "durable_service.commands.approvals:approvals",
    "actions": "durable_service.commands.actions:actions",
    "events": "durable_service.commands.events:events",
    "top": "durable_service.commands.top:top",
}


@click.group(
    cls=CommandGroup,
    modules=_COMMANDS,
    help=_PURPOSE,
    epilog=_STATUS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def durable_service() -> None:
    pass


def main() -> None:
    """Run the command with the arguments of this process, and end it."""
    durable_service(prog_name="durable-service")
