"""Bringing a store to the version of this service."""

import asyncio

import click

from durable_service.store_forms import FORMS, is_known
from service_common.errors import SettingsError

_STATUS = """\b
Exit status:
  0  the store is at the version of this service
  2  it is not; the reason is one line on standard error
"""


@click.command(epilog=_STATUS)
@click.option("--store", metavar="URL", envvar="DURABLE_STORE", required=True, help="As serve takes it.")
@click.option("--finish", is_flag=True, help="Remove what older servers needed; they have to be gone.")
def migrate(store: str, *, finish: bool) -> None:
    r"""Bring a store to the version of this service.

    An upgrade of servers that share a database goes in two steps. The first only adds: servers of the version
    before go on beside the new ones. "serve" takes it by itself, or this command does where the user of the
    service may not change tables. The second, with --finish, removes what only the older servers needed, when
    they are gone.

    \b
      durable-service migrate --store postgresql://owner@db.example/tasks
      ... replace the servers ...
      durable-service migrate --store postgresql://owner@db.example/tasks --finish
    """
    try:
        if not is_known(store):
            raise SettingsError(f"--store {store!r} is not supported; supported: {', '.join(FORMS)}")
        # Not before: whoever only asks for help should not wait for every store.
        from durable_service.migration import migrate_stores  # noqa: PLC0415

        click.echo(asyncio.run(migrate_stores(store, finish=finish)))
    except SettingsError as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(2) from None
