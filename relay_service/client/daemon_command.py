"""Serving at the terminal: the configured services, their health, and an orderly end on a signal."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import quote

import click

from relay_service.client.calls import GET_SITES, Calls, RequestSigner
from relay_service.client.connection import Connection
from relay_service.client.daemon import Daemon
from relay_service.client.daemon_config import DaemonConfig
from relay_service.client.daemon_services import Offer, Services
from relay_service.client.keys import Keys
from relay_service.client.offered_version import remember_offer
from relay_service.client.pin_file import PINS_NAME, PinFile
from relay_service.client.pins import SitePins
from relay_service.client.prompt_log import PromptLog
from relay_service.client.service_config import FixedCommand, ServiceConfig
from sealwork.relay.v1 import daemon_plane_pb2
from service_common.clocks import SystemClock

_HEALTH_SECONDS: Final = 15.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def serve(
    config: DaemonConfig,
    connection: Connection,
    keys: Keys,
    *,
    trust_directory: bool,
    grace_seconds: float,
) -> None:
    """Serve until a signal; a second one ends at once.

    Raises:
        RelayError: The relay will not have this device.
        SpoolError: The results of an earlier run cannot be read.
        LedgerError: The ledger of an earlier run cannot be read.
        ConfigError: An API key cannot be read.
        PromptLogUnavailable: The prompt log cannot be written.
    """
    clock = SystemClock()
    services = Services(
        config.services,
        config.defaults,
        os.environ,
        clock,
        named_by_grant=config.control_plane_key is not None,
    )
    prompt_log = PromptLog(
        config.prompt_log.path, max_bytes=config.prompt_log.max_bytes, keep=config.prompt_log.keep
    )
    prompt_log.prepare()
    try:
        offer = services.offer(await services.health())
        daemon = Daemon(
            connection,
            runner_id=config.runner_id,
            keys=keys,
            pins=config.pins,
            matrix=offer.matrix,
            handlers=services.handlers(),
            slots=config.slots,
            spool_dir=spool_folder(config),
            owner=config.owner,
            control_plane_key=config.control_plane_key,
            limits=config.limits,
            withheld=offer.withheld,
            prompt_log=prompt_log,
            trust_directory=trust_directory,
            on_update=remember_offer(spool_folder(config)),
            clock=clock,
        )
        _introduce(config, keys, offer)
        await _until_signal(daemon, services, offer, grace_seconds)
    finally:
        await services.close()


async def check_relay(config: DaemonConfig, connection: Connection, keys: Keys) -> str:
    """Ask the relay for this device's sites, and return what it says in a line.

    Raises:
        RelayError: It does not answer, or does not know this device.
    """
    clock = SystemClock()
    signer = RequestSigner(config.runner_id, keys.signer, clock)
    calls = Calls(connection.calls_channel, signer, clock=clock, random=Random())  # noqa: S311 - jitter
    try:
        answer = await calls.call(GET_SITES, daemon_plane_pb2.GetSitesRequest(), attempts=1)
    finally:
        await calls.close()
    sites = answer.directory.sites
    pins = learned_pins(config)
    # A control plane's grants name the sites; those of the directory are pinned as they come.
    trusts = config.control_plane_key is not None
    strange = [site.key_id for site in sites if not trusts and pins.get(site.key_id) is None]
    text = f"answers; {len(sites)} site(s) may send work here"
    return f"{text}, not pinned: {', '.join(strange)}" if strange else text


def learned_pins(config: DaemonConfig) -> SitePins:
    """Return the pins as they stand: those that are configured, and what this device has learned of them.

    Raises:
        PinError: What was learned cannot be read.
    """
    trusts = config.control_plane_key is not None
    file = PinFile(spool_folder(config) / PINS_NAME)
    pins = SitePins(config.pins, SystemClock(), trust_directory=trusts, file=file)
    pins.open()
    return pins


def spool_folder(config: DaemonConfig) -> Path:
    """Return where this device keeps what outlives its process: undelivered results and its ledger."""
    return config.keys.parent / "spool" / quote(config.runner_id, safe="")


def service_lines(config: DaemonConfig, health: Mapping[str, bool]) -> list[str]:
    """Describe the configured services, a line each."""
    return [
        f"{service.service}: {', '.join(service.kinds)} by {service.model} ({_backend(service)}), for"
        f" {'the team' if config.control_plane_key and service.offer_scope == 'team' else 'the owner alone'}:"
        f" {'ready' if health.get(service.service) else 'does not answer'}"
        for service in config.services
    ]


def _backend(service: ServiceConfig) -> str:
    # A program is offered under the id of some back end, which by itself would look like a mistake here.
    if isinstance(service.endpoint, FixedCommand):
        return f"a program, offered as {service.backend_id}"
    return service.backend_id


async def _until_signal(daemon: Daemon, services: Services, offer: Offer, grace_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    running = loop.create_task(daemon.run())
    watching = loop.create_task(_watch_health(daemon, services, offer))
    stopping: list[asyncio.Task[None]] = []

    def stop() -> None:
        if stopping:
            running.cancel()
            return
        click.echo("finishing what runs; once more ends at once", err=True)
        stopping.append(loop.create_task(daemon.stop(grace_seconds)))

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        await running
    except asyncio.CancelledError:
        # Of `running` by the second signal; any other is somebody's wish to end this.
        if not running.cancelled():
            raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        for task in (watching, *stopping):
            task.cancel()
        await asyncio.wait((watching, *stopping))


async def _watch_health(daemon: Daemon, services: Services, offer: Offer) -> None:
    """What does not answer is not advertised, and is again once it does."""
    while True:
        await asyncio.sleep(_HEALTH_SECONDS)
        now = services.offer(await services.health())
        if now != offer:
            offer = now
            daemon.change_matrix(offer.matrix, offer.withheld)
            click.echo(f"offers now: {_kinds(offer)}", err=True)


def _introduce(config: DaemonConfig, keys: Keys, offer: Offer) -> None:
    click.echo(f"device {config.runner_id} with key id {keys.key_id}, relay {config.relay}", err=True)
    click.echo(f"offers {_kinds(offer)}; serves {len(config.pins)} pinned site(s)", err=True)
    if config.control_plane_key is None and any(each.offer_scope == "team" for each in config.services):
        click.echo("nobody but the owner is served: that takes a control plane's signed grants", err=True)
    for kind in offer.withheld:
        names = ", ".join(name for name, _ in kind.claimants)
        click.echo(f"{kind.kind} is withheld: choose one of {names} under [defaults]", err=True)


def _kinds(offer: Offer) -> str:
    return (
        ", ".join(f"{row.kind} by {row.model}" for row in offer.matrix)
        or "nothing: no service answers, relay-daemon status shows which"
    )
