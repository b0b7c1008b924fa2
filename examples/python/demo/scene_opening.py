"""Step 1: everything starts."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from examples.python.demo import scenery
from examples.python.demo.children import Children
from examples.python.demo.failures import KEEP, DemoFailure
from examples.python.demo.model import Model, start_model
from examples.python.demo.operators_view import Operator
from examples.python.demo.pairing import PairedNow, pair_devices
from examples.python.demo.screen import Screen, quoted
from examples.python.demo.stage import Stage
from examples.python.demo.wire import Tap, TappedConnection
from relay_service.client.errors import RelayError
from relay_service.client.site import Site
from relay_service.core.identity import PublicIdentity

LEAVE_SECONDS = 2.0


@asynccontextmanager
async def opened_stage(screen: Screen, folder: Path) -> AsyncIterator[Stage]:
    """Start everything and end it again, whatever happens in between."""
    children = Children(folder)
    async with AsyncExitStack() as closing:
        closing.push_async_callback(children.stop)
        screen.heading(1, "A relay, an operator's decisions, two devices")
        # The model takes longest; it loads while the rest starts.
        loading = asyncio.create_task(start_model(children))
        try:
            with screen.waiting("starting the relay"):
                parties = await scenery.make_parties(children, folder)
                relay, address = await scenery.start_relay(children, folder)
                decisions = [
                    await scenery.decide(children, folder, address, each) for each in scenery.decisions()
                ]
            _tell_relay(screen, decisions, address)
            with screen.waiting("pairing two devices"):
                paired = await pair_devices(children, folder, address, parties)
            _tell_pairings(screen, paired, address)
            with screen.waiting("loading the model"):
                model = await loading
        finally:
            loading.cancel()
        _tell_model(screen, model)
        operator = Operator(address, parties.operator)
        closing.push_async_callback(operator.close)
        started = time.monotonic()
        with screen.waiting("starting two devices"):
            devices = await scenery.start_devices(children, folder, parties, model, operator)
        _tell_devices(screen, parties, time.monotonic() - started)
        tap = Tap()
        async with _opened_site(parties, address, tap) as site:
            stage = Stage(
                *(screen, folder, children, parties, model, relay, address),
                *(operator, devices, tap, site, [], []),
            )
            try:
                yield stage
            except RelayError as error:
                failure = DemoFailure(f"The relay refused a call: {error}", KEEP)
                raise await children.explain(failure) from None


@asynccontextmanager
async def _opened_site(parties: scenery.Parties, address: str, tap: Tap) -> AsyncIterator[Site]:
    def trust(device: PublicIdentity, runner_id: str) -> bool:
        # The site seals to the devices that it knows, whatever the relay says.
        return parties.devices.get(runner_id) == device

    connection = TappedConnection(address, tap=tap)
    site = Site(connection, site_id=scenery.SITE_ID, keys=parties.site, trust=trust, acknowledge=False)
    await site.__aenter__()
    try:
        yield site
    finally:
        # Bounded: nobody waits for a relay that may be gone.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await site.close()


def _tell_relay(screen: Screen, decisions: list[str], address: str) -> None:
    screen.say("Somebody runs a relay; it serves on a free port, and its store is in memory:")
    screen.command(f"relay-service init {scenery.OPERATORS}")
    screen.command(" ".join(("relay-service", *scenery.serve_command(address))))
    screen.say("They decide who takes part, by commands signed with the operator's key:")
    screen.command(f"export RELAY_OPERATOR_KEY={scenery.OPERATORS}/operator-keys.json")
    for command in decisions:
        screen.command(command)


def _tell_pairings(screen: Screen, paired: Sequence[PairedNow], address: str) -> None:
    owner = scenery.OWNER.capitalize()
    screen.say(f"{owner} lets her two devices in. On each she types the like of")
    screen.command(f"relay-daemon pair --relay {address} --label {paired[0].label}")
    screen.say("and reads a code and the id of the device's new key out to the operator:")
    screen.facts((each.label, f"[device]{each.code}[/]  {each.key_id}") for each in paired)
    screen.say("The operator compares the key ids, and approves:")
    for each in paired:
        screen.command(each.approval)
    screen.say("Each device knew it at once, has pinned the site, and goes by a name that is its own now:")
    screen.facts((each.label, f"[device]{each.runner_id}[/]") for each in paired)


def _tell_model(screen: Screen, model: Model) -> None:
    if model.why_not:
        screen.say(
            f"[bad]The language model cannot be used here[/] ({quoted(model.why_not)}); "
            "`make demo` installs it. Going on with a command in its place; everything else is the same."
        )
    screen.say(f"The devices answer with {quoted(model.title)}.")


def _tell_devices(screen: Screen, parties: scenery.Parties, seconds: float) -> None:
    screen.say(f"{scenery.OWNER.capitalize()} has started a daemon on each of her two devices:")
    screen.command("relay-daemon run --config daemon.toml")
    screen.facts((runner_id, "[device]connected[/]") for runner_id in parties.devices)
    screen.say(f"[quiet]Both were up after {seconds:.1f} s.[/]")
