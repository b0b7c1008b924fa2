"""The processes of the demo: started, read line by line, watched, and never left behind."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from examples.python.demo.failures import KEEP, DemoFailure

Result = TypeVar("Result")

STOP_SECONDS = 8.0
NOTICE_SECONDS = 1.0
SHOWN_LINES = 12
_LONGEST_LINE_BYTES = 1 << 22


class Child:
    """One process and everything that it has written.

    Attributes:
        name: What people call it.
        lines: Those of both outputs, in the order of arrival.
        expendable: It may end without that being a failure.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.lines: list[str] = []
        self.expendable = False
        self._process = process
        self._log = log
        self._changed = asyncio.Event()
        self.reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    @property
    def exit_status(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        status = self.exit_status or 0
        if status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"ended with exit status {status}"

    async def find_line(self, pattern: str) -> re.Match[str] | None:
        """Return the first line that the pattern is found in; None when the output ends without one."""
        position = 0
        while True:
            for line in self.lines[position:]:
                position += 1
                if match := re.search(pattern, line):
                    return match
            if self.reader.done():
                return None
            self._changed.clear()
            await self._changed.wait()

    def kill(self) -> None:
        """Take it away without a warning."""
        self.expendable = True
        self._signal(signal.SIGKILL)

    async def end(self) -> None:
        """Return when it has ended by itself."""
        await self._process.wait()

    async def stop(self) -> None:
        """Ask it to end, and make it end."""
        self.expendable = True
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        finally:
            # Each child leads a group of its own; whatever it left there goes with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def failed(self, what: str, advice: str) -> DemoFailure:
        """Return a failure that shows the last lines of this process."""
        return DemoFailure(what, advice, process=self.name, output=self.lines[-SHOWN_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        # Not by asyncio's own method: that one polls first, and takes the exit status from its watcher.
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._log.open("a", encoding="utf-8") as log:
                while line := await self._process.stdout.readline():
                    text = line.decode(errors="replace").rstrip("\r\n")
                    log.write(f"{text}\n")
                    log.flush()
                    self.lines.append(text)
                    self._changed.set()
        finally:
            self._changed.set()


class Children:
    """All processes of the demo."""

    def __init__(self, folder: Path) -> None:
        """Keep the logs and the temporary files of all of them in this folder."""
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder)}
        # The processes find the code where the demo has found it, installed or not.
        self._environment["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
        # Settings of other services on this machine are none of ours.
        for name in [name for name in self._environment if name.startswith(("RELAY_", "DURABLE_"))]:
            del self._environment[name]
        self._children: list[Child] = []

    def log_of(self, child: Child) -> Path:
        return self._logs / f"{child.name}.log"

    async def start(
        self, name: str, argv: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start a process; it runs until `stop`, whatever happens to the demo in between."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self._environment, **(environment or {})},
            limit=_LONGEST_LINE_BYTES,
            # Ctrl-C reaches the demo alone, which then ends its children in order.
            start_new_session=True,
        )
        child = Child(name, process, self._logs / f"{name}.log")
        self._children.append(child)
        return child

    async def run(
        self, name: str, argv: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> str:
        """Run a command to its end and return what it printed.

        Raises:
            DemoFailure: It failed.
        """
        child = await self.start(name, argv, environment)
        child.expendable = True
        await child.reader
        await child.end()
        self._children.remove(child)
        if child.exit_status != 0:
            raise child.failed(
                f"The command `{name}` {child.ending}.",
                "Run it by hand; its own message should say what it needs.",
            )
        return "\n".join(child.lines)

    async def while_alive(self, work: Awaitable[Result], seconds: float, what: str) -> Result:
        """Await something for as long as it may take, unless a process that it needs ends first.

        Args:
            work: Waited for, and cancelled when it does not come to its end.
            seconds: How long it may take.
            what: What is waited for, for the message.

        Raises:
            DemoFailure: A process ended, or the time was up.
        """
        task = asyncio.ensure_future(work)
        watch = asyncio.create_task(self._first_to_end())
        try:
            await asyncio.wait((task, watch), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if watch.done():
                raise self._ended(watch.result(), f" while the demo waited for {what}")
            suspect = self._children[0]
            raise suspect.failed(
                f"Waited {seconds:.0f} s for {what}, in vain.",
                f"Is this machine very busy? Then run the demo again. {KEEP}",
            )
        finally:
            for each in (task, watch):
                each.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def explain(self, failure: DemoFailure) -> DemoFailure:
        """Return why a call failed: a process that has just ended, or else what the call itself says."""
        try:
            # The call may fail a moment before the end of the process is known.
            async with asyncio.timeout(NOTICE_SECONDS):
                return self._ended(await self._first_to_end(), "")
        except TimeoutError:
            return failure

    async def stop(self) -> None:
        """End all processes."""
        # At once: the relay, asked to end, waits for its devices to take their leave.
        await asyncio.gather(*(child.stop() for child in self._children))
        for child in self._children:
            child.reader.cancel()
        await asyncio.gather(*(child.reader for child in self._children), return_exceptions=True)

    def _ended(self, child: Child, when: str) -> DemoFailure:
        return child.failed(
            f"The {child.name} {child.ending}{when}.", f"Its last lines, above, should say why. {KEEP}"
        )

    async def _first_to_end(self) -> Child:
        while True:
            for child in self._children:
                if not child.running and not child.expendable:
                    # Its last words may still be in the pipe.
                    await asyncio.wait((child.reader,), timeout=1)
                    return child
            await asyncio.sleep(0.05)
