"""One child process: what it writes, when it ends, and how it is ended together with its whole group."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from relay_service.client.backends.base import BackendFailure
from relay_service.client.backends.output import CappedOutput
from relay_service.client.backends.supervision import settle, within
from service_common.clocks import Clock

STDOUT = 1
DRAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """What to start and what to feed it.

    Attributes:
        argv: Program and arguments, fixed by configuration. No shell reads them.
        stdin: All that the child is told about the job.
        folder: Its working folder.
        environment: Its whole environment.
        output_limit_bytes: Bound on what is kept of its standard output.
        terminate_seconds: How long it has between SIGTERM and SIGKILL when it is ended early.
    """

    argv: Sequence[str]
    stdin: bytes
    folder: Path
    environment: Mapping[str, str]
    output_limit_bytes: int
    terminate_seconds: float


class ChildProcess(asyncio.SubprocessProtocol):
    """Collects a child's output and follows its life.

    The callbacks are used rather than asyncio's streams because the latter report the end of a child only
    when its pipes are closed too, and a grandchild may hold those open for ever.
    """

    def __init__(self, output_limit_bytes: int) -> None:
        self.output = CappedOutput(output_limit_bytes)
        self.stderr_bytes = 0
        self.overflowed = False
        self.stopped = asyncio.Event()
        """The child has exited, or has written more than it may."""
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()
        """All of its standard output has been read."""
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def exit_status(self) -> int | None:
        """The status, negative for a signal, None while it runs or if it never started."""
        return None if self._transport is None else self._transport.get_returncode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the interface without the base class.
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != STDOUT:
            self.stderr_bytes += len(data)
            return
        if self.overflowed:
            return
        try:
            self.output.add(data)
        except BackendFailure:
            self.overflowed = True
            self.stopped.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd == STDOUT:
            self.drained.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.stopped.set()
        # Whatever the child left in its group goes with it. The id cannot have passed to strangers while
        # the group has members; once it has none there is nobody to signal.
        self._signal_group(signal.SIGKILL)

    def write(self, data: bytes) -> None:
        """Feed the child's standard input and close it."""
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if pipe is not None:
            writer = cast("asyncio.WriteTransport", pipe)
            writer.write(data)
            writer.write_eof()

    async def end(self, terminate_seconds: float, clock: Clock) -> None:
        """Return when the child and its group are gone: asked first, then killed."""
        if self._transport is None:
            return
        if not self.exited.is_set():
            self._signal_group(signal.SIGTERM)
            if not await within(clock, terminate_seconds, self.exited):
                self._signal_group(signal.SIGKILL)
                await self.exited.wait()
        self._transport.close()

    def _signal_group(self, number: signal.Signals) -> None:
        if self._transport is not None:
            # The child leads a session of its own, so its process id is its group's id.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), number)


async def run_child(command: ChildCommand, clock: Clock) -> ChildProcess:
    """Run a child to its end and return it, or end it if the caller is cancelled.

    Raises:
        OSError: It cannot be started.
    """
    child = ChildProcess(command.output_limit_bytes)
    try:
        # A child half started can be neither fed nor killed: being cancelled waits for this to be over.
        starting = asyncio.create_task(_start(command, child))
        await settle(starting)
        starting.result()
        child.write(command.stdin)
        await child.stopped.wait()
        if child.exited.is_set():
            # What is left in the pipe follows at once, unless a process outside the group holds it open.
            await within(clock, DRAIN_SECONDS, child.drained)
    finally:
        ending = asyncio.create_task(child.end(command.terminate_seconds, clock))
        await settle(ending)
    return child


async def _start(command: ChildCommand, child: ChildProcess) -> None:
    await asyncio.get_running_loop().subprocess_exec(
        lambda: child,
        *command.argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=command.folder,
        env=dict(command.environment),
        start_new_session=True,
    )
