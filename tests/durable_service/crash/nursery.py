"""The tests' side of the process that others are forked from."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[3]


@dataclass
class Life:
    """A process that was begun.

    Attributes:
        status: Of its end, negative for a signal; None while it lives.
    """

    output: Path
    pid: int = 0
    status: int | None = None
    born: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def lines(self) -> list[str]:
        return self.output.read_text().splitlines() if self.output.exists() else []

    async def end(self, seconds: float = 30) -> int:
        try:
            await asyncio.wait_for(self.over.wait(), seconds)
        except TimeoutError:
            raise AssertionError(f"{self.output.name} does not end; it said {self.lines[-30:]}") from None
        assert self.status is not None
        return self.status

    async def says(self, words: str, seconds: float = 30, *, after: int = 0) -> str:
        """Waits for a line that has these words, from `lines[after]` on."""

        def found() -> str | None:
            line = next((line for line in self.lines[after:] if words in line), None)
            assert line or not self.over.is_set(), f"{self.output.name} ended: {self.lines[-30:]}"
            return line

        return await eventually(found, seconds, lambda: f"{words!r} of {self.lines[-30:]}")

    def signal(self, number: int) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.end()


class Nursery:
    """Begins processes; `nursery` makes one and ends all that it has begun."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._numbers = itertools.count(1)
        self._lives: dict[int, Life] = {}
        self._by_pid: dict[int, Life] = {}
        self.reader = asyncio.create_task(self._read())

    async def begin(self, folder: Path, name: str, life: str, **options: Any) -> Life:
        number = next(self._numbers)
        begun = self._lives[number] = Life(folder / f"{name}-{number}.txt")
        order = {"id": number, "life": life, "output": str(begun.output), **options}
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(order).encode() + b"\n")
        await asyncio.wait_for(begun.born.wait(), 30)
        return begun

    async def close(self) -> None:
        living = list(self._by_pid.values())
        for life in living:
            # One that is stopped does not die of anything less either.
            life.signal(signal.SIGKILL)
        for life in living:
            await life.end()

    async def _read(self) -> None:
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            match line.decode().split():
                case ["born", number, pid]:
                    life = self._by_pid[int(pid)] = self._lives.pop(int(number))
                    life.pid = int(pid)
                    life.born.set()
                case ["ended", pid, status]:
                    life = self._by_pid.pop(int(pid))
                    life.status = int(status)
                    life.over.set()
                case _:
                    pass


@contextlib.asynccontextmanager
async def nursery() -> AsyncIterator[Nursery]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "protos" / "gen" / "python")])
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.durable_service.crash.nursery_child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "GRPC_VERBOSITY": "NONE"},
    )
    begun = Nursery(child)
    try:
        yield begun
        await begun.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        begun.reader.cancel()
        await asyncio.gather(begun.reader, return_exceptions=True)
