"""Real child processes: started, read line by line, signalled, and never left behind."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tests.harness.waiting import eventually

# A grandchild may hold the pipes open after the child is gone; its end is not waited for longer than this.
_DRAIN_SECONDS = 1.0
_LONGEST_LINE_BYTES = 1 << 24
_SHOWN_LINES = 60

Readiness: TypeAlias = str | re.Pattern[str] | Callable[["RunningProcess"], bool | Awaitable[bool]]


class RunningProcess:
    """A child in a session of its own, with the lines it has written so far.

    Attributes:
        lines: Those of both outputs, in the order of arrival.
        ready: The match of the readiness line, when readiness was a pattern.
    """

    def __init__(self, argv: Sequence[str], child: asyncio.subprocess.Process) -> None:
        self.pid = child.pid
        self.lines: list[str] = []
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self.ready: re.Match[str] | None = None
        self._argv = argv
        self._child = child
        outputs = ((child.stdout, self.stdout), (child.stderr, self.stderr))
        self._readers = [asyncio.create_task(self._read(*output)) for output in outputs]

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal, None while it runs."""
        return self._child.returncode

    def kill(self) -> None:
        """Sends SIGKILL to the child alone; what it started itself is killed at the end of `running`."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Sends SIGTERM to the child alone."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Freezes the child: its sockets stay open and nobody answers on them."""
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._signal(signal.SIGCONT)

    async def wait(self, timeout: float = 20.0) -> int:
        """Waits for the end, reads what is left of the output, and returns the exit status."""
        # Not Process.wait(): that also waits for every grandchild that holds a pipe.
        await eventually(lambda: self.returncode is not None, timeout, f"the end of {self._argv}")
        await asyncio.wait(self._readers, timeout=_DRAIN_SECONDS)
        assert self.returncode is not None
        return self.returncode

    async def wait_line(
        self, pattern: str | re.Pattern[str], timeout: float = 20.0, *, after: int = 0
    ) -> re.Match[str]:
        """Waits for a line of either output that the pattern is found in, from `lines[after]` on.

        Raises:
            AssertionError: None came in time, or the output ended without one.
        """
        expression = re.compile(pattern)
        position = after

        def found() -> re.Match[str] | None:
            nonlocal position
            for line in self.lines[position:]:
                position += 1
                if match := expression.search(line):
                    return match
            ended = all(reader.done() for reader in self._readers)
            assert not ended, f"the output ended without a line like {expression.pattern!r}"
            return None

        return await eventually(found, timeout, f"a line like {expression.pattern!r}")

    def answers(self, ready: Callable[["RunningProcess"], bool | Awaitable[bool]]) -> bool | Awaitable[bool]:
        """Asks a readiness callable, as long as there is a process that may become ready."""
        assert self.returncode is None, "the process ended before it was ready"
        return ready(self)

    def describe(self) -> str:
        """The command, its exit status and the last lines it wrote, for a failure message."""
        state = "running" if self.returncode is None else f"exit status {self.returncode}"
        lines = [f"  | {line}" for line in self.lines[-_SHOWN_LINES:]] or ["  | (no output)"]
        return "\n".join([f"process {self.pid} ({state}): {' '.join(self._argv)}", *lines])

    async def close(self) -> None:
        """Kills and reaps the child and everything left of its process group."""
        # Not to be repeated: with its last member gone, the number of the group may become a stranger's.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def _signal(self, number: signal.Signals) -> None:
        # Once the child is reaped its number may be a stranger's.
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _read(self, stream: asyncio.StreamReader | None, into: list[str]) -> None:
        assert stream is not None
        while line := await stream.readline():
            into.append(line.decode(errors="replace").rstrip("\r\n"))
            self.lines.append(into[-1])


@contextlib.asynccontextmanager
async def running(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    ready: Readiness | None = None,
    ready_timeout: float = 20.0,
) -> AsyncIterator[RunningProcess]:
    """Runs a command for as long as the block lasts; what is raised in it carries the output as a note.

    Args:
        argv: Program and arguments; no shell.
        env: Added to the environment of the tests.
        ready: A pattern found in a line of output, or a callable that answers whether the process is ready.

    Raises:
        AssertionError: It was not ready in time, or ended before.
    """
    child = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
        limit=_LONGEST_LINE_BYTES,
        start_new_session=True,
    )
    process = RunningProcess(argv, child)
    try:
        if callable(ready):
            await eventually(lambda: process.answers(ready), ready_timeout, "readiness")
        elif ready is not None:
            process.ready = await process.wait_line(ready, ready_timeout)
        yield process
    except BaseException as error:
        # Closed first: the note then has the last words too.
        await process.close()
        error.add_note(process.describe())
        raise
    await process.close()
