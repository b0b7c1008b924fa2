"""Sites: who may ask for work."""

import json
import time
from pathlib import Path
from typing import Any, Final

import click

from relay_service.client.succession import SuccessionLink
from relay_service.commands.identity_file import read_identity_file
from relay_service.commands.operator_calls import (
    STATUS,
    OrderedGroup,
    as_json,
    ask,
    change,
    operator_options,
    show_json,
    show_table,
)
from relay_service.core.identity import PublicIdentity, decode_base64url, key_id, verify_binding
from service_common.durations import Duration

_MAXIMUM_BYTES: Final = 65_536

_SITE_ID = click.argument("site_id")


@click.group(cls=OrderedGroup, epilog=STATUS)
def sites() -> None:
    """Register the sites that may ask for work, and look at them."""


@sites.command(epilog=STATUS)
@_SITE_ID
@click.option("--identity", metavar="FILE", help='What "relay-site identity" prints; - for stdin.')
@click.option(
    "--public-keys",
    nargs=3,
    metavar="IDENTITY ENCRYPTION SIGNATURE",
    help="The same three values, as base64url.",
)
@operator_options
def add(site_id: str, identity: str | None, public_keys: tuple[str, str, str] | None, **options: Any) -> None:
    """Register the site SITE_ID by its public identity, and print its key id.

    Compare the key id with what the site shows, over another channel.
    """
    if (identity is None) == (public_keys is None):
        raise click.UsageError("give the site's public identity: --identity FILE, or --public-keys")
    public = (
        read_identity_file(identity) if public_keys is None and identity else _identity(public_keys or ())
    )
    change(options, lambda operator: operator.add_site(site_id, public))
    click.echo(f"key id {public.key_id}")


@sites.command("list", epilog=STATUS)
@as_json
@operator_options
def list_sites(as_json: bool, **options: Any) -> None:  # noqa: FBT001 - click calls it by name
    """List the sites, with what the relay that is asked knows of each."""
    found = ask(options, lambda operator: operator.sites())
    if as_json:
        show_json(
            {
                "siteId": site.site_id,
                "keyId": site.key_id,
                "streams": site.sessions,
                "unfinishedJobs": site.unfinished_jobs,
            }
            for site in found
        )
        return
    show_table(
        ("site", "key", "streams", "unfinished jobs"),
        [(site.site_id, site.key_id, str(site.sessions), str(site.unfinished_jobs)) for site in found],
        "no site yet: relay-service sites add SITE_ID --identity FILE",
    )


@sites.command(epilog=STATUS)
@_SITE_ID
@click.option("--identity", required=True, metavar="FILE", help="The new public identity; - for stdin.")
@click.option(
    "--succession",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='The old key\'s word for the new one: {"identity": the old one, "signature": ...}.',
)
@click.option(
    "--keep-old",
    type=Duration(milliseconds=True),
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="How long earlier keys still count.",
)
@operator_options
def rotate(site_id: str, identity: str, succession: Path, keep_old: int, **options: Any) -> None:
    """Move the site SITE_ID to a new key; devices follow it by themselves."""
    public = read_identity_file(identity)
    link = _link(succession)
    until_ms = time.time_ns() // 1_000_000 + keep_old if keep_old else None
    change(options, lambda operator: operator.rotate_site(site_id, public, link.signature, until_ms))
    click.echo(f"key id {public.key_id}")


@sites.command(epilog=STATUS)
@_SITE_ID
@operator_options
def remove(site_id: str, **options: Any) -> None:
    """Take the site SITE_ID out, and every consent to it."""
    change(options, lambda operator: operator.remove_site(site_id))


def _identity(values: tuple[str, ...]) -> PublicIdentity:
    try:
        identity = PublicIdentity(*(decode_base64url(value) for value in values))
    except ValueError:
        raise click.UsageError("--public-keys: three values of unpadded base64url") from None
    if not verify_binding(identity):
        raise click.ClickException(
            f"--public-keys: the identity key {key_id(identity.identity)} has not signed this encryption key"
        )
    return identity


def _link(path: Path) -> SuccessionLink:
    try:
        return SuccessionLink.from_json(json.loads(path.read_bytes()[:_MAXIMUM_BYTES]))
    except ValueError as error:
        raise click.ClickException(f"{path}: is no succession: {error}") from None
