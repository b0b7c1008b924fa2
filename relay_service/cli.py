"""The relay-service command."""

import click

from service_common.command_group import CommandGroup

_PURPOSE = """Run a blind relay: it matches jobs to devices and carries sealed work that it cannot read.

First steps on one machine:

\b
  relay-service init relay
  relay-service serve --dev --projection relay/projection.json \\
      --operator-identity relay/operator.json

and while it serves, in another terminal:

\b
  export RELAY_OPERATOR_KEY=relay/operator-keys.json
  relay-site identity > site.json
  relay-service sites add demo --identity site.json
  relay-service consents grant --owner alice --site demo
  relay-service approve CODE --owner alice

Commands from "sites" to "devices" call the relay that serves; "projection" works on the file alone.
"""
_STATUS = """\b
Exit status of every command:
  0  done
  1  refused or failed; the reason is one line on standard error
  2  a wrong option or setting
"""

# Loaded when they are asked for: an edit of the projection need not wait for gRPC, and a process that serves
# never loads what signs as an operator.
_COMMANDS = {
    "init": "relay_service.commands.first_steps:init",
    "keys": "relay_service.commands.first_steps:keys",
    "serve": "relay_service.commands.serve:serve",
    "check-config": "relay_service.commands.serve:check_config",
    "sites": "relay_service.commands.sites:sites",
    "consents": "relay_service.commands.consents:consents",
    "rosters": "relay_service.commands.rosters:rosters",
    "pairings": "relay_service.commands.pairings:pairings",
    "approve": "relay_service.commands.pairings:approve",
    "deny": "relay_service.commands.pairings:deny",
    "devices": "relay_service.commands.devices:devices",
    "projection": "relay_service.commands.projection:projection",
}


@click.group(
    cls=CommandGroup,
    modules=_COMMANDS,
    help=_PURPOSE,
    epilog=_STATUS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def relay_service() -> None:
    pass


def main() -> None:
    """Run the command with the arguments of this process, and end it."""
    relay_service(prog_name="relay-service")
