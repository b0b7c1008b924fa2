"""The cases of journals, checkpoints and artifacts that every implementation has to pass."""

import asyncio
from pathlib import Path

import pytest

from durable_service.blobs.collection import Collected, collect_orphans
from durable_service.blobs.filesystem import FileBlobStore
from durable_service.core.artifacts import (
    ArtifactContent,
    checkpoint_content,
    put_artifact,
    put_checkpoint,
    readable_snapshot,
)
from durable_service.core.binding import blob_key, bytes_digest
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.errors import DomainError, Reason
from durable_service.core.states import TaskState
from durable_service.store.base import EventDraft
from durable_service.store.sqlite import SqliteTaskStore

from .stage import KEY, Dial, Stage
from .test_core_cases import reason

VALUE = b'{"step":1}'


async def append(stage: Stage, name: str) -> int:
    draft = EventDraft(name, "note", CanonicalJson("1"))
    return (await stage.store.append(KEY, stage.holder, draft)).answer.sequence


async def test_1_a_journal_is_numbered_and_owns_up_to_its_gaps(short_memory: Stage) -> None:
    stage = await short_memory.begin()
    await stage.claim()
    # task.created, task.state and lease.granted were there before.
    numbers = await asyncio.gather(*(append(stage, name) for name in "abc"))
    assert sorted(numbers) == [4, 5, 6]
    with pytest.raises(DomainError) as gap:
        await stage.store.events(KEY, 0, 10)
    assert (gap.value.reason, gap.value.details) == (Reason.EVENT_GAP, {"earliest": "4", "latest": "6"})
    assert [event.sequence for event in (await stage.store.events(KEY, 3, 10)).events] == [4, 5, 6]
    assert await stage.complete() is TaskState.COMPLETED
    (last,) = (await stage.store.events(KEY, 6, 10)).events
    assert (last.sequence, last.type) == (7, "task.state")
    assert last.data == '{"before":"running","state":"completed"}'
    assert await reason(append(stage, "late")) is Reason.LEASE_LOST
    assert (await stage.store.events(KEY, 7, 10)).events == ()
    assert await reason(stage.store.events(KEY, 8, 10)) is Reason.EVENT_GAP


async def test_2_a_checkpoint_is_immutable_and_expires(stage: Stage) -> None:
    await stage.begin()
    await stage.claim()
    first = checkpoint_content("one", bytes_digest(VALUE), len(VALUE), 50)
    snapshot = await stage.run(put_checkpoint, stage.holder, "one", first)
    assert (snapshot.artifact_id, snapshot.digest) == ("snapshot:one", bytes_digest(VALUE))
    other = checkpoint_content("one", bytes_digest(b'{"step":2}'), 10, 50)
    assert await reason(stage.run(put_checkpoint, stage.holder, "one", other)) is Reason.ARTIFACT_IMMUTABLE
    record = await stage.record()
    assert readable_snapshot(record, "one", 1_049).digest == snapshot.digest
    for checkpoint_id, now_ms, why in (
        ("one", 1_050, Reason.ARTIFACT_EXPIRED),
        ("two", 1_000, Reason.SNAPSHOT_NOT_FOUND),
    ):
        with pytest.raises(DomainError) as refusal:
            readable_snapshot(record, checkpoint_id, now_ms)
        assert refusal.value.reason is why


async def test_3_bytes_whose_writer_lost_the_lease_are_an_orphan(stage: Stage, tmp_path: Path) -> None:
    blobs = FileBlobStore(tmp_path / "blobs", stage.dial.wall)
    await stage.begin()
    await stage.claim()
    loser = stage.holder
    content = ArtifactContent("output", bytes_digest(b"hello"), 5, "text/plain", 1_000)
    key = blob_key(KEY, content.id, content.digest)
    await blobs.put(key, b"hello")
    # The lease goes to another while the bytes are written.
    stage.pass_ms(100)
    await stage.claim("worker-2")
    assert await reason(stage.run(put_artifact, loser, content)) is Reason.LEASE_LOST
    assert (await stage.record()).artifacts == {}
    assert await blobs.get(key) == b"hello"
    stage.pass_ms(1)
    found = await collect_orphans(blobs, stage.store.referenced, stage.dial.now_ms)
    assert (found, await blobs.get(key)) == (Collected(removed=1, referenced=0), None)


async def test_4_everything_is_there_for_the_next_process(tmp_path: Path) -> None:
    dial = Dial()
    database = tmp_path / "tasks.db"
    stage = Stage(SqliteTaskStore(database, wall=dial.wall, steady=dial.steady), dial)
    await stage.begin()
    await stage.claim()
    await append(stage, "a")
    content = checkpoint_content("one", bytes_digest(VALUE), len(VALUE), 50)
    await stage.run(put_checkpoint, stage.holder, "one", content)
    await stage.complete("result:1")
    await stage.store.close()
    again = Stage(SqliteTaskStore(database, wall=dial.wall, steady=dial.steady), dial)
    assert [kind for _, kind in await again.journal()] == [
        "task.created",
        "task.state",
        "lease.granted",
        "note",
        "task.state",
    ]
    assert (await again.store.events(KEY, 5, 10)).events == ()
    record = await again.record()
    assert (record.result_ref, readable_snapshot(record, "one", 1_000).digest) == (
        "result:1",
        bytes_digest(VALUE),
    )
    await again.store.close()
