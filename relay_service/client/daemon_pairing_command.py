"""Pairing at the terminal: what is shown while a person decides, and how it ends."""

import asyncio
import platform
import shlex
import sys
from pathlib import Path
from typing import Final

import click

from relay_service.client.cli_options import fail
from relay_service.client.connection import Connection
from relay_service.client.daemon_options import DEFAULT_KEYS
from relay_service.client.daemon_pairing import (
    PairedDevice,
    PairingCode,
    PairingEnded,
    PairingError,
    PairingEvents,
    pair_device,
)
from relay_service.client.daemon_pairing_file import Transport, pairing_path, save_pairing
from relay_service.client.keys import Keys
from relay_service.core.pairing import LABEL_CHARACTERS
from service_common.clocks import Clock, SystemClock

DENIED_STATUS: Final = 3
EXPIRED_STATUS: Final = 4

_TICK_SECONDS: Final = 1.0
_LINE_SECONDS: Final = 60.0


async def pair(connection: Connection, transport: Transport, keys: Keys, key_file: Path, label: str) -> None:
    """Pair this device and keep what comes of it.

    Raises:
        click.exceptions.Exit: It did not come to a pairing; the reason has been printed.
        RelayError: The relay refuses, or cannot be reached.
        OSError: The pairing cannot be written.
    """
    screen = PairingScreen(connection.address, keys.key_id, SystemClock())
    ticking = asyncio.ensure_future(screen.tick())
    try:
        paired = await pair_device(connection, keys, label, PairingEvents(screen.code, screen.trouble))
    except PairingEnded as ended:
        screen.clear()
        fail(str(ended), DENIED_STATUS if ended.denied else EXPIRED_STATUS)
    except PairingError as error:
        screen.clear()
        fail(str(error))
    finally:
        ticking.cancel()
        screen.clear()
    save_pairing(key_file, keys.key_id, connection.address, transport, paired)
    _say_paired(paired, key_file)


def default_label() -> str:
    """Return what this machine calls itself."""
    name = "".join(character for character in platform.node() if character.isprintable())
    return name.strip()[:LABEL_CHARACTERS] or "device"


class PairingScreen:
    """Shows the code and how long it lives: in a line that changes, or a line a minute off a terminal."""

    def __init__(self, relay: str, key_id: str, clock: Clock) -> None:
        self._relay = relay
        self._key_id = key_id
        self._clock = clock
        self._deadline: float | None = None
        self._next_line = 0.0
        self._drawn = False
        self._animated = sys.stdout.isatty()

    def code(self, code: PairingCode) -> None:
        """Show a code; of several the latest counts."""
        if self._deadline is not None:
            self._line("The relay has forgotten that code. This one takes its place:")
        self._deadline = code.deadline
        self._next_line = self._clock.monotonic()
        self._line(f"Pairing this device with the relay {self._relay}\n")
        self._line(f"  code    {code.user_code}")
        self._line(f"  key id  {self._key_id}\n")
        if code.verification_url:
            self._line(f"Open {code.verification_url} and enter the code.")
        else:
            self._line("Whoever runs the relay approves it there with this command:\n")
            self._line(f"  relay-service approve {code.user_code} --owner NAME\n")
        self._line("The key id that is shown there has to be the one above.")
        self._draw()

    def trouble(self, text: str) -> None:
        """Tell of trouble that may pass."""
        self._line(text)

    async def tick(self) -> None:
        """Keep the time on the screen until cancelled."""
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            self._draw()

    def clear(self) -> None:
        """Take the changing line away."""
        if self._drawn:
            click.echo("\r\x1b[K", nl=False)
            self._drawn = False

    def _draw(self) -> None:
        if self._deadline is None:
            return
        now = self._clock.monotonic()
        left = max(0, round(self._deadline - now))
        text = f"waiting for approval, {left // 60}:{left % 60:02} left"
        if self._animated:
            click.echo(f"\r\x1b[K{text}", nl=False)
            self._drawn = True
        elif now >= self._next_line:
            self._next_line = now + _LINE_SECONDS
            click.echo(text)

    def _line(self, text: str) -> None:
        self.clear()
        click.echo(text)


def _say_paired(paired: PairedDevice, key_file: Path) -> None:
    click.echo(f"Paired: this device is {paired.runner_id}, owned by {paired.owner}.")
    for key_id in sorted(paired.pins):
        click.echo(f"  pinned site  {key_id}")
    if not paired.pins:
        click.echo(f"  no site yet: when {paired.owner} consents to one, run this command again to pin it")
    click.echo(f"  kept in      {pairing_path(key_file)}")
    if not paired.pins:
        return
    named = "" if key_file == DEFAULT_KEYS.expanduser() else f" --keys {shlex.quote(str(key_file))}"
    click.echo(f"Now let it answer, with a back end of yours: relay-daemon run{named} --backend ...")
