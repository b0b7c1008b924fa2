"""A Python module that runs as a process of its own and talks in lines."""

import asyncio
import os
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from tempfile import TemporaryFile

from bench.placement import on_server_core
from bench.process_stats import ServerMeter
from bench.processes import end_process
from bench.variant import VariantFailedError, VariantUnavailableError

_STOP_SECONDS = 10.0
_TOLD_CHARACTERS = 300


class Child:
    """One process on the server's core; its standard input and output are lines of text.

    Args:
        module: what `python -m` runs.
        placement: the cores that it is started on, where they are others.
        environment: what its environment has besides that of this process.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        placement: Callable[[], AbstractContextManager[None]] = on_server_core,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._placement = placement
        self._environment = dict(environment or {})
        self._command = (sys.executable, "-m", module, *arguments)
        self._process: Process | None = None
        # A file: a pipe that nobody empties would stop the process once it is full.
        self._errors = TemporaryFile()  # noqa: SIM115 - closed with the process

    async def start(self, seconds: float) -> str:
        """Starts the process and returns the first line that it says.

        Raises:
            VariantUnavailableError: it said nothing within the time, or ended.
        """
        environment = os.environ | self._environment
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with self._placement():
            self._process = await create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=self._errors, env=environment
            )
        try:
            return await asyncio.wait_for(self._line(), seconds)
        except TimeoutError:
            raise VariantUnavailableError(f"{self._command[2]} said nothing for {seconds:.0f} s") from None
        except VariantFailedError as error:
            raise VariantUnavailableError(str(error)) from None

    async def ask(self, line: str) -> str:
        """Says a line and returns the next one that comes.

        Raises:
            VariantFailedError: the process has ended.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        return await self._line()

    async def stop(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, process.wait(), _STOP_SECONDS)
        self._errors.close()

    def meter(self) -> ServerMeter:
        """Starts counting what the process takes."""
        assert self._process is not None
        return ServerMeter([self._process.pid])

    async def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode().strip()
        if not line:
            self._errors.seek(0)
            said = " ".join(self._errors.read().decode(errors="replace").split())[-_TOLD_CHARACTERS:]
            raise VariantFailedError(f"{self._command[2]} ended: {said}")
        return line
