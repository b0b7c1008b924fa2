"""Relays as processes of their own on one shared store, and parties that use the client library."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from relay_service.client import Daemon, GeneratePayload, JobContext, OkOutcome
from relay_service.client.backends.base import RunLimits
from relay_service.client.daemon_config import Limits
from relay_service.core.model import Audience, Capability
from relay_service.projection_file import format_projection
from tests.harness.processes import RunningProcess, running
from tests.relay_service.raw_client import KIND
from tests.relay_service.relay_fixture import PROJECTION, READY, REPOSITORY, keys_of

TEAM = Capability(KIND, "desk", "llamacpp", "http", "small", Audience.TEAM)
SEARCH = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'protos/gen/python'}"}
OWNERS = (("runner-1", "alice"), ("runner-2", "alice"), ("runner-b", "bob"))
# None of what these tests do is to be refused for its number.
_MANY = Limits(
    own=RunLimits(65_536, 60), others=RunLimits(65_536, 60), others_per_hour=10**6, others_per_day=10**6
)

# Whose jobs they are. Each has a device of their own at least: without a control plane's grants a device
# does nothing for others.
PEOPLE = ("alice", "bob")


def write_projection(folder: Path) -> Path:
    path = folder / "projection.json"
    path.write_text(format_projection(PROJECTION), "utf-8")
    return path


def relay_command(store: str, projection: Path, *flags: str) -> list[str]:
    argv = [sys.executable, "-m", "relay_service", "serve", "--dev", "--log-format", "json"]
    return [*argv, "--store", store, "--projection", str(projection), *flags]


def relay_on(
    store: str, projection: Path, address: str, *flags: str
) -> AbstractAsyncContextManager[RunningProcess]:
    """Runs a relay and yields it when it serves; at the end it and what it started are killed."""
    argv = relay_command(store, projection, "--listen", address, *flags)
    return running(argv, env=SEARCH, cwd=projection.parent, ready=READY, ready_timeout=40)


class Device:
    """A device of the client library; its answer is the prompt, backwards.

    Attributes:
        accepted: ids of the jobs that it was given to run, in order; one more than once when it was redone.
    """

    def __init__(self, address: str, name: str, owner: str, slots: int = 8) -> None:
        self.accepted: list[str] = []
        self._daemon = Daemon(
            address,
            runner_id=name,
            keys=keys_of(name),
            pins=[keys_of(site).public for site in ("demo", "other")],
            matrix=[TEAM],
            handlers={KIND: self._answer},
            slots=slots,
            owner=owner,
            limits=_MANY,
        )
        self._serving = asyncio.create_task(self._daemon.run())

    async def close(self) -> None:
        """Ends it, without waiting for what runs."""
        self._serving.cancel()
        with suppress(asyncio.CancelledError):
            await self._serving

    async def _answer(self, job: JobContext) -> OkOutcome:
        self.accepted.append(job.job_id)
        assert isinstance(job.payload, GeneratePayload)
        return OkOutcome(job.payload.prompt[::-1])


async def close_all(devices: Sequence[Device]) -> None:
    await asyncio.gather(*(device.close() for device in devices))
