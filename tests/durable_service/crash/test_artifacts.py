"""The bytes of artifacts over the ends of their worker, its service and the database."""

import asyncio
from itertools import takewhile
from pathlib import Path

import pytest

from durable_service.client import Condition, DurableError, TaskState

from .ground import Ground, service
from .kept import KINDS, Kept, blob_keys
from .lives import content_of
from .nursery import Nursery

pytestmark = [pytest.mark.process, pytest.mark.parametrize("kept", KINDS, indirect=True)]
ARTIFACTS = [f"artifact-{number}" for number in range(1, 41)]


async def end_everything(ground: Ground) -> None:
    """The service and its database end at once, and are there again."""
    kill = ground.kept.kill
    await asyncio.gather(ground.server.kill(), *([asyncio.to_thread(kill)] if kill else []))
    await ground.serve()


async def read(ground: Ground, artifact_id: str) -> bytes | None:
    """The bytes of an artifact, or None when the task has no such artifact."""
    try:
        return await ground.alice.records.artifact("a", artifact_id)
    except DurableError as error:
        if error.reason != "ARTIFACT_NOT_FOUND":
            raise
        return None


async def complete(ground: Ground, *steps: str) -> None:
    """Another worker takes over and goes through all of it."""
    await ground.pass_lease()
    await ground.until("a", Condition.CLAIMABLE)
    worker = await ground.work(*steps)
    assert await worker.end() == 0, worker.lines
    assert (await ground.task("a")).state is TaskState.COMPLETED


@pytest.mark.guarantee(
    "{kept}",
    "Artifacts over the end of everything at once: what was confirmed is there byte for byte, "
    "what was not is there as a whole or not at all",
)
async def test_what_was_confirmed_is_there(ground: Ground, kept: Kept) -> None:
    await ground.create("a")
    worker = await ground.work(*ARTIFACTS)
    await worker.says("kept artifact-3")
    # In the middle of whichever comes next.
    await asyncio.gather(worker.kill(), end_everything(ground))
    confirmed = [line.split()[1] for line in worker.lines if line.startswith("kept ")]
    assert 3 <= len(confirmed) < len(ARTIFACTS)
    found = {name: await read(ground, name) for name in ARTIFACTS}
    there = list(takewhile(found.__getitem__, ARTIFACTS))
    assert there[: len(confirmed)] == confirmed
    assert len(there) - len(confirmed) in {0, 1}
    assert found == {name: content_of(name) if name in there else None for name in ARTIFACTS}
    # The bytes of one may be there without a reference.
    assert len(await asyncio.to_thread(blob_keys, kept)) - len(there) in {0, 1}
    # Those that are there are put again.
    steps = ARTIFACTS[: len(confirmed) + 2]
    await complete(ground, *steps)
    assert [await read(ground, name) == content_of(name) for name in steps] == [True] * len(steps)


@pytest.mark.guarantee("{kept}", "Bytes whose reference died with the service are put again, and kept once")
@pytest.mark.parametrize(
    ("point", "left", "keys"),
    [
        ("bytes:before", 1, 0),
        ("bytes:after", 1, 1),
        # The third commit, after those of the task and of its claim, is the artifact's.
        ("commit:before", 3, 1),
        ("commit:after", 3, 1),
    ],
)
async def test_bytes_without_a_reference_are_put_again(
    cradle: Nursery, tmp_path: Path, kept: Kept, point: str, left: int, keys: int
) -> None:
    async with service(cradle, tmp_path, kept, fuse=(point, left)) as ground:
        await ground.create("a")
        worker = await ground.work("artifact-1", "checkpoint")
        assert await ground.server.end() == -9
        assert ground.server.lines[-1] == f"dies {point}"
        assert len(await asyncio.to_thread(blob_keys, kept)) == keys
        await ground.serve()
        # The worker asks again for as long as it has its task.
        assert await worker.end() == 0, worker.lines
        assert "ended completed None" in worker.lines
        assert await read(ground, "artifact-1") == content_of("artifact-1")
        assert await ground.alice.records.snapshot("a", "half") == {"step": 1}
        # The artifact's and the checkpoint's.
        assert len(await asyncio.to_thread(blob_keys, kept)) == 2
