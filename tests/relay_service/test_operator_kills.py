"""A relay that is killed while operators decide has done what it answered, and its trail says so."""

import asyncio
import hashlib
import json
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest

from relay_service.client.errors import RelayError
from relay_service.client.operator import Operator
from relay_service.core.projection import Projection
from relay_service.projection_file import load_projection
from tests.harness.waiting import eventually
from tests.relay_service.relay_fixture import PROJECTION, keys_of, relay_process
from tests.relay_service.replicas.relay_processes import relay_on
from tests.relay_service.store.valkey_fixture import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

KILLS = 5
OPERATORS = 4
# By the relay that noted a change and could not make it, or by the next one after a kill between the two.
TAKEN_BACK = ("withdrawn", "the change above did not happen")


class Deciding:
    """Operators who let one person after the other consent, until the relay is gone."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self._numbers = count(1)

    async def decide(self, address: str) -> None:
        async with Operator(address, keys=keys_of("operator")) as operator:
            while True:
                person = f"person-{next(self._numbers)}"
                await operator.grant_consent(person, "demo")
                self.answered.append(person)


def on_disk(path: Path) -> tuple[Projection, str, list[dict[str, str]]]:
    """The file, its digest and the whole lines of its trail."""
    trail = path.with_name(path.name + ".audit.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in trail if line.endswith("}")]
    return load_projection(path), hashlib.sha256(path.read_bytes()).hexdigest(), lines


async def test_what_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    identity = tmp_path / "operator.json"
    await asyncio.to_thread(identity.write_text, json.dumps(keys_of("operator").public.to_json()))
    path, random, deciding = tmp_path / "projection.json", Random(5), Deciding()
    async with relay_process(tmp_path, projection=PROJECTION):
        pass
    for _ in range(KILLS):
        before = len(deciding.answered)
        goal = before + random.randint(5, 40)
        address = f"127.0.0.1:{free_port()}"
        async with relay_on("memory:", path, address, "--operator-identity", str(identity)) as process:
            deciders = [asyncio.create_task(deciding.decide(address)) for _ in range(OPERATORS)]
            await eventually(lambda goal=goal: len(deciding.answered) >= goal, 60)  # type: ignore[misc]
            process.kill()
            await process.wait()
            for decider in deciders:
                decider.cancel()
                with suppress(asyncio.CancelledError, RelayError):
                    await decider
        projection, digest, lines = await asyncio.to_thread(on_disk, path)
        lost = [person for person in deciding.answered if not projection.may_route(person, "demo")]
        assert lost == []
        assert digest in {lines[-1]["sha256"], lines[-1]["previousSha256"]}
        # A line that takes back what was noted before it names the revision that stays in force.
        noted = [line for line in lines if not line["changes"][0].startswith(TAKEN_BACK)]
        revisions = [line["revision"] for line in noted]
        assert revisions == sorted(revisions), lines[-5:]
