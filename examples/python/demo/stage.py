"""All that the scenes of the demo share."""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from examples.python.demo.children import Child, Children
from examples.python.demo.failures import DemoFailure
from examples.python.demo.model import Model
from examples.python.demo.operators_view import Operator
from examples.python.demo.scenery import OWNER, Parties, prompt_log
from examples.python.demo.screen import Screen
from examples.python.demo.wire import Tap
from relay_service.client.payloads import ChatMessage, ChatPayload
from relay_service.client.site import JobHandle, Site

Result = TypeVar("Result")

ANSWER_SECONDS = 120.0
# How long a device works on a long job before something happens to it.
RUN_SECONDS = (1.5, 0.5, 0.2, 0.05)


@dataclass(frozen=True)
class Exchange:
    """A prompt and its answer, for whoever looks for them later."""

    job_id: str
    prompt: str
    answer: str


@dataclass(frozen=True)
class LongJob:
    """A job that a device is in the middle of.

    Attributes:
        runner_id: The device.
        began_at_ms: When it began, by its prompt log.
    """

    job: JobHandle
    runner_id: str
    began_at_ms: int


@dataclass
class Stage:
    """The running demo.

    Attributes:
        exchanges: What was asked and answered so far.
        results: What each scene wants said at the end, as markup.
    """

    screen: Screen
    folder: Path
    children: Children
    parties: Parties
    model: Model
    relay: Child
    relay_address: str
    operator: Operator
    devices: dict[str, Child]
    tap: Tap
    site: Site
    exchanges: list[Exchange]
    results: list[str]

    async def wait(self, work: Awaitable[Result], what: str, seconds: float = ANSWER_SECONDS) -> Result:
        """Await something while every process is watched."""
        with self.screen.waiting(f"waiting for {what}"):
            return await self.children.while_alive(work, seconds, what)

    async def long_job(self, prompt: str) -> LongJob:
        """Return a job that a device is in the middle of.

        A fast device is done before one looks, so it is given less and less time.

        Raises:
            DemoFailure: It was always done already.
        """
        for seconds in RUN_SECONDS:
            payload = ChatPayload([ChatMessage("user", prompt)])
            job = await self.site.enqueue(payload, owner=OWNER, audience="private")
            claimed = await self.wait(self.tap.beat(job.id, "please-seal"), "a device to claim")
            began = await self.running_at(job, claimed.runner_id)
            with self.screen.waiting(f"{claimed.runner_id} works on it"):
                await asyncio.sleep(seconds)
            if not job.done:
                return LongJob(job, claimed.runner_id, began)
            job.acknowledge()
        raise DemoFailure("The devices answer too fast to be caught in the middle.", "Run the demo again.")

    async def running_at(self, job: JobHandle, runner_id: str) -> int:
        """Return when a device began to run a job, in epoch milliseconds by the device's own prompt log."""
        return int(
            (await self.wait(self._ingress(job.id, runner_id), f"{runner_id} to run the job"))["at_ms"]
        )

    async def _ingress(self, job_id: str, runner_id: str) -> dict[str, Any]:
        path = prompt_log(self.folder, runner_id)
        while True:
            lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
            for line in map(json.loads, lines):
                # Other entries are about sites and their keys.
                if line.get("job_id") == job_id:
                    return dict(line)
            # Half a line cannot be seen: the log is written line by line.
            await asyncio.sleep(0.01)
