"""Serving, and looking at the settings without serving."""

import shlex
from typing import Final, NoReturn

import click

from durable_service.admission_file import AdmissionError, load_admission
from durable_service.config import FORM, load_settings
from durable_service.principals_file import PrincipalsError, load_principals
from service_common.errors import SettingsError
from service_common.settings_options import settings_options

_SERVE: Final = """Serve until SIGTERM or Ctrl-C.

An option goes before the environment variable in its brackets. To try it out on this machine:

\b
  durable-service serve --dev --principals principals.json --store sqlite:///tasks.db

The principals file is watched: what "durable-service principals" or an editor changes in it is in force
within a second, and while it is broken the last good one stays in force.
"""
_SERVE_STATUS: Final = """\b
Exit status:
  0  ended in order, after SIGTERM or Ctrl-C
  1  ended by a second signal, or failed while it was serving
  2  did not start: a setting, an address, the store or the principals have to be corrected
"""
_CHECK_STATUS: Final = """\b
Exit status:
  0  a service with these settings and these principals starts
  2  it does not; what has to be corrected is on standard error
"""
_METAVARS: Final = {
    "listen": "ADDRESS",
    "store": "URL",
    "blobs": "FOLDER",
    "tls_certificate": "FILE",
    "tls_key": "FILE",
    "tls_client_ca": "FILE",
    "principals": "FILE",
    "admission": "FILE",
    "purge": "AGES",
    "events_per_task": "NUMBER",
    "event_bytes_per_task": "BYTES",
    "artifact_bytes": "BYTES",
    "metrics_listen": "HOST:PORT",
    "admin_listen": "ADDRESS",
    "server_instance": "NAME",
    "wanted_streams": "NUMBER",
}
_options = settings_options(FORM, _METAVARS)


@click.command(help=_SERVE, epilog=_SERVE_STATUS)
@_options
@click.pass_context
def serve(context: click.Context, /, **flags: object) -> None:
    try:
        settings = load_settings(flags)
        # Not before: whoever only asks for help should not wait for everything that a server needs.
        from durable_service.process import run  # noqa: PLC0415

        context.exit(run(settings))
    except (SettingsError, PrincipalsError, AdmissionError) as error:
        _refuse(error)


@click.command("check-config", short_help="Print the settings, and check them.", epilog=_CHECK_STATUS)
@_options
def check_config(**flags: object) -> None:
    """Print the settings that "serve" would use, as environment variables.

    They are checked as "serve" checks them, and so are the files of principals and of admission.
    """
    try:
        settings = load_settings(flags)
        if settings.principals is not None:
            load_principals(settings.principals)
        if settings.admission is not None:
            load_admission(settings.admission)
    except (SettingsError, PrincipalsError, AdmissionError) as error:
        _refuse(error)
    for variable, value in FORM.describe(settings).items():
        click.echo(f"{variable}={shlex.quote(value) if value else ''}")


def _refuse(error: ValueError) -> NoReturn:
    for line in str(error).splitlines():
        click.echo(f"Error: {line}", err=True)
    raise click.exceptions.Exit(2)
