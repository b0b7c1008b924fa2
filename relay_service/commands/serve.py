"""Serving, and looking at the settings without serving."""

import shlex
from typing import NoReturn

import click

from relay_service.commands.settings_options import settings_options
from relay_service.config import describe_settings, load_settings
from relay_service.projection_file import ProjectionError, load_projection
from service_common.errors import SettingsError

_SERVE = """Serve a relay until SIGTERM or Ctrl-C.

An option goes before the environment variable in its brackets. To try it out on this machine:

\b
  relay-service projection new projection.json
  relay-service serve --dev --projection projection.json

The projection file is watched: what "relay-service projection" or an editor changes in it is in force within
a second, and while it is broken the last good one stays in force.
"""
_SERVE_STATUS = """\b
Exit status:
  0  ended in order, after SIGTERM or Ctrl-C
  1  ended by a second signal, or failed while it was serving
  2  did not start: a setting, an address or the projection has to be corrected
"""
_CHECK_STATUS = """\b
Exit status:
  0  a relay with these settings and this projection starts
  2  it does not; what has to be corrected is on standard error
"""


@click.command(help=_SERVE, epilog=_SERVE_STATUS)
@settings_options
@click.pass_context
def serve(context: click.Context, /, **flags: object) -> None:
    try:
        settings = load_settings(flags)
        # Not before: whoever only asks for help should not wait for everything that a server needs.
        from relay_service.process import run  # noqa: PLC0415

        context.exit(run(settings))
    except (SettingsError, ProjectionError) as error:
        _refuse(error)


@click.command("check-config", short_help="Print the settings, and check them.", epilog=_CHECK_STATUS)
@settings_options
def check_config(**flags: object) -> None:
    """Print the settings that "serve" would use, as environment variables.

    They are checked as "serve" checks them, and so is the projection file.
    """
    try:
        settings = load_settings(flags)
        if settings.projection is not None:
            load_projection(settings.projection)
    except (SettingsError, ProjectionError) as error:
        _refuse(error)
    for variable, value in describe_settings(settings).items():
        click.echo(f"{variable}={shlex.quote(value) if value else ''}")


def _refuse(error: ValueError) -> NoReturn:
    for line in str(error).splitlines():
        click.echo(f"Error: {line}", err=True)
    raise click.exceptions.Exit(2)
