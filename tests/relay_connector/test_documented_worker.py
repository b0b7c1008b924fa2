"""The worker that the documentation shows, run as it stands against both services and a device."""

import asyncio
import re
from pathlib import Path
from typing import Any

from durable_service.client import Driver, NewTask, TaskState
from relay_connector import Answer, RelayConnector, artifact_id_of
from relay_service.client import Daemon, JobContext, OkOutcome, Site
from tests.durable_service.client.real_service import real_service
from tests.relay_service.client.real_relay import DEVICE_KEYS, GENERATE, LIMITS, SITE_KEYS, real_relay

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "relay-connector.md"


async def test_the_worker_of_the_documentation_works() -> None:
    [text] = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    shown: dict[str, Any] = {"__name__": "shown"}
    exec(compile(text, "relay-connector.md", "exec"), shown)

    async def model(job: JobContext) -> OkOutcome:
        assert not isinstance(job.payload, str)
        return OkOutcome(f"In short: {job.payload}")

    async with real_relay() as relay, real_service() as service:
        daemon = Daemon(
            relay.address,
            runner_id="desk",
            keys=DEVICE_KEYS,
            pins=[SITE_KEYS.public],
            matrix=[GENERATE],
            handlers={"llm.generate": model},
            owner="alice",
            limits=LIMITS,
        )
        serving = asyncio.ensure_future(daemon.run())
        async with Site(relay.address, site_id="shop", keys=SITE_KEYS) as site:
            connector = RelayConnector(site)
            await service.worker(
                lambda context: shown["summarise"](context, connector), connectors=[connector]
            )
            alice = await service.client()
            await alice.tasks.create(NewTask("t-1", driver=Driver("mail", 1), input="a long letter"))
            ended, _ = await alice.tasks.wait("t-1")
            assert ended.state is TaskState.COMPLETED, ended.failure
            assert ended.result_ref is not None
            kept = await alice.records.artifact("t-1", artifact_id_of(ended.result_ref))
            assert Answer.from_bytes(kept).text.startswith("In short: ")
            made = [event.type async for event in alice.records.follow("t-1", follow=False)]  # type: ignore[union-attr]
            assert "summary.made" in made
            # Confirmed, and settled: the relay holds nothing of it any more.
            assert await relay.server.relay.store.jobs() == []
        await daemon.stop(0)
        await serving
