"""The demo from beginning to end."""

import argparse
import asyncio
import contextlib
import shutil
import signal
import tempfile
import time
from pathlib import Path

from examples.python.demo import (
    scene_ask,
    scene_blind,
    scene_cancel,
    scene_durable,
    scene_prompts,
    scene_takeover,
)
from examples.python.demo.failures import KEEP, DemoFailure
from examples.python.demo.scene_opening import opened_stage
from examples.python.demo.screen import Screen
from relay_service.client.errors import JobEndedError, JobFailedError, RelayError, ResultRefusedError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
# The steps that the README shows.
PICTURED_FROM = 3

_FURTHER = (
    ("make test", "run the whole test suite"),
    ("make serve-relay", "a relay of your own on this machine"),
    ("make demo BACKEND=command", "the same without a language model, faster"),
    ("less README.md", "first steps, one page for each kind of user"),
    ("less docs/protocol.md", "write a client in another language"),
)


async def perform(screen: Screen, folder: Path) -> None:
    """Play all scenes."""
    started = time.monotonic()
    async with opened_stage(screen, folder) as stage:
        await scene_prompts.play(stage)
        await scene_blind.play(stage)
        await scene_cancel.play(stage)
        await scene_takeover.play(stage)
        party = await scene_durable.play(stage)
        await scene_ask.play(stage, party)
        results = stage.results
    screen.summary([*results, f"[quiet]done in {time.monotonic() - started:.0f} s[/]"], _FURTHER)


async def _interruptible(screen: Screen, folder: Path) -> None:
    """Play, and end everything in order at SIGTERM as at Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await perform(screen, folder)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Show on this machine what the services are for. BACKEND=command in the environment does "
        "without a language model.",
    )
    parser.add_argument("--keep", action="store_true", help="keep keys, configurations and logs")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write the steps from the third as an SVG picture"
    )
    return parser.parse_args()


def main() -> int:
    """Run the demo and return its exit status."""
    options = parse_options()
    screen = Screen(pictured_from=PICTURED_FROM)
    screen.title(
        "Sealwork: a relay that cannot read what it carries, and tasks that last",
        "Real processes on this machine: a relay, two devices that answer prompts, and a site; then a "
        "service of durable tasks, and workers that do not live long.",
    )
    # A Unix socket lives in it, and the path of one is at most about a hundred bytes.
    folder = Path(tempfile.mkdtemp(prefix="sealwork-"))
    try:
        status = _perform(screen, folder)
    finally:
        _tidy(screen, folder, keep=options.keep)
    if options.record is not None and status == 0:
        screen.save_picture(options.record)
    return status


def _perform(screen: Screen, folder: Path) -> int:
    try:
        asyncio.run(_interruptible(screen, folder))
    except DemoFailure as failure:
        screen.failure(failure)
    except RelayError as error:
        screen.failure(DemoFailure(f"The relay refused a call: {error}", KEEP))
    except (JobEndedError, JobFailedError, ResultRefusedError) as error:
        screen.failure(DemoFailure(f"A job came to no answer: {error}", "Run the demo again."))
    except (KeyboardInterrupt, asyncio.CancelledError):
        screen.say("\n[bad]Interrupted.[/] Everything that the demo started has been ended.")
        return EXIT_INTERRUPTED
    else:
        return 0
    return EXIT_FAILED


def _tidy(screen: Screen, folder: Path, *, keep: bool) -> None:
    if keep:
        screen.say(f"Keys, configurations and logs are kept in {folder}")
        return
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
