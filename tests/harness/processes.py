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
    """A child in a session of its own, with what it has written so far.

    Attributes:
        pid: Process id.
        lines: Both outputs in the order of arrival, without line ends.
        stdout: Standard output alone.
        stderr: Standard error alone.
        ready: The match of the readiness line, when readiness was a pattern.
    """

    def __init__(self, argv: Sequence[str], child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self.pid = child.pid
        self.lines: list[str] = []
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self.ready: re.Match[str] | None = None
        self._argv = argv
        self._child = child
        self._closed = False
        self._readers = [
            asyncio.create_task(self._read(child.stdout, self.stdout)),
            asyncio.create_task(self._read(child.stderr, self.stderr)),
        ]

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal, None while it runs."""
        return self._child.returncode

    def kill(self) -> None:
        """Sends SIGKILL to the child alone; what it started itself is killed at the end of `running`."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
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

    async def become_ready(self, ready: Readiness, timeout: float) -> None:
        if not callable(ready):
            self.ready = await self.wait_line(ready, timeout)
            return

        def answer() -> bool | Awaitable[bool]:
            assert self.returncode is None, "the process ended before it was ready"
            return ready(self)

        await eventually(answer, timeout, "readiness")

    def describe(self) -> str:
        """The command, its exit status and the last lines it wrote, for a failure message."""
        state = "running" if self.returncode is None else f"exit status {self.returncode}"
        lines = [f"  | {line}" for line in self.lines[-_SHOWN_LINES:]] or ["  | (no output)"]
        return "\n".join([f"process {self.pid} ({state}): {' '.join(self._argv)}", *lines])

    async def close(self) -> None:
        """Kills and reaps the child and everything left of its process group."""
        if self._closed:
            return
        # Once only: the group keeps the child's number while a member lives, later it may be a stranger's.
        self._closed = True
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

    async def _read(self, stream: asyncio.StreamReader, into: list[str]) -> None:
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
        env: Added to this process's environment.
        cwd: Where it starts.
        ready: A pattern found in a line of output, or a callable that answers whether the process is ready.
        ready_timeout: Seconds until it must be ready.

    Raises:
        AssertionError: It was not ready in time, or ended before.
    """
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
        limit=_LONGEST_LINE_BYTES,
        start_new_session=True,
    )
    process = RunningProcess(argv, child)
    try:
        if ready is not None:
            await process.become_ready(ready, ready_timeout)
        yield process
    except BaseException as error:
        # Closed first: the note then has the last words too.
        await process.close()
        error.add_note(process.describe())
        raise
    finally:
        await process.close()
