"""Journal entries, artifacts, checkpoints, extensions and retention."""

import pytest

from durable_service.core.artifacts import (
    ArtifactContent,
    checked_content,
    checkpoint_content,
    put_artifact,
    put_checkpoint,
    readable_artifact,
    readable_snapshot,
)
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.errors import DomainError, Reason
from durable_service.core.extensions import update_extension
from durable_service.core.journal import append_event, check_cursor
from durable_service.core.model import Extension, Holder, Snapshot, TaskEvent, Tombstone
from durable_service.core.retention import purgeable, tombstone
from durable_service.core.step import Decision
from durable_service.core.succession import check_succession

from .tasks import Story, reason, refused

HELLO_DIGEST = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
OTHER_DIGEST = "sha256:" + "0" * 64


def held() -> Story:
    story = Story.begin()
    story.claim()
    return story


def append(
    story: Story, event_id: str = "event-1", data: str = "1", known: TaskEvent | None = None
) -> TaskEvent:
    return story.apply(
        append_event(story.record, story.holder, event_id, "note", CanonicalJson(data), story.now_ms, known)
    )


def test_entries_are_numbered_without_gaps() -> None:
    story = held()
    assert [event.sequence for event in story.events] == [1, 2, 3]
    event = append(story)
    assert event == TaskEvent(4, "note", 1_000, "claim-1", 1, CanonicalJson("1"), "event-1")
    story.release()
    assert [event.sequence for event in story.events] == [1, 2, 3, 4, 5]
    assert story.record.last_sequence == 5


def test_an_entry_is_appended_once() -> None:
    story = held()
    first = append(story)
    assert append(story, known=first) == first
    assert reason(lambda: append(story, data="2", known=first)) is Reason.REQUEST_ID_REUSED


@pytest.mark.parametrize("event_type", ["task.state", "lease.expired", "", "a\x00"])
def test_types_that_a_worker_may_not_write(event_type: str) -> None:
    story = held()
    call = lambda: append_event(story.record, story.holder, "e", event_type, CanonicalJson("1"), 1_000)  # noqa: E731
    assert reason(call) is Reason.INVALID_IDENTIFIER


def test_how_large_an_entry_may_be() -> None:
    story = held()
    append(story, "fits", '"' + "é" * 16_383 + '"')
    refusal = refused(lambda: append(story, "large", '"' + "é" * 16_384 + '"'))
    assert (refusal.reason, refusal.details) == (Reason.EVENT_TOO_LARGE, {"limit_bytes": "32768"})


@pytest.mark.parametrize(
    ("after", "earliest", "latest", "fits"),
    [
        (0, 1, 0, True),
        (1, 1, 0, False),
        (0, 4, 5, False),
        (2, 4, 5, False),
        (3, 4, 5, True),
        (5, 4, 5, True),
        (6, 4, 5, False),
    ],
)
def test_cursor(after: int, earliest: int, latest: int, fits: bool) -> None:
    if fits:
        check_cursor(after, earliest, latest)
    else:
        refusal = refused(lambda: check_cursor(after, earliest, latest))
        assert refusal.reason is Reason.EVENT_GAP
        assert refusal.details == {"earliest": str(earliest), "latest": str(latest)}


def test_a_cursor_below_zero() -> None:
    assert reason(lambda: check_cursor(-1, 1, 0)) is Reason.INVALID_INTEGER


def hello(ttl_ms: int = 50, artifact_id: str = "output", digest: str = HELLO_DIGEST) -> ArtifactContent:
    return ArtifactContent(artifact_id, digest, 5, "text/plain", ttl_ms)


def test_an_artifact_is_immutable_and_expires() -> None:
    story = held()
    reference = story.apply(put_artifact(story.record, story.holder, hello(), 1_000))
    assert (reference.blob_key, reference.expires_at_ms) == (
        "183556fc06263bf660738f3c12e7682e1c7123a43458d13225dd3ff0cb65adaf",
        1_050,
    )
    again = put_artifact(story.record, story.holder, hello(ttl_ms=9_000), 1_010)
    assert (again.answer, again.written) == (reference, False)
    other = hello(digest=OTHER_DIGEST)
    refusal = refused(lambda: put_artifact(story.record, story.holder, other, 1_010))
    assert (refusal.reason, refusal.details) == (
        Reason.ARTIFACT_IMMUTABLE,
        {"existing_digest": HELLO_DIGEST},
    )
    assert readable_artifact(story.record, "output", 1_049) == reference
    assert reason(lambda: readable_artifact(story.record, "output", 1_050)) is Reason.ARTIFACT_EXPIRED
    assert reason(lambda: readable_artifact(story.record, "toString", 1_000)) is Reason.ARTIFACT_NOT_FOUND


def test_a_reference_needs_the_lease() -> None:
    story = held()
    loser = Holder("worker-1", 0)
    assert reason(lambda: put_artifact(story.record, loser, hello(), 1_000)) is Reason.LEASE_LOST


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (hello(artifact_id="snapshot:x"), Reason.INVALID_IDENTIFIER),
        (hello(artifact_id=""), Reason.INVALID_IDENTIFIER),
        (hello(digest="sha256:ABC"), Reason.FIELD_INVALID),
        (hello(ttl_ms=0), Reason.TTL_RANGE),
        (ArtifactContent("a", HELLO_DIGEST, 1_000_001, "t", 1), Reason.ARTIFACT_TOO_LARGE),
        (ArtifactContent("a", HELLO_DIGEST, -1, "t", 1), Reason.INVALID_INTEGER),
    ],
)
def test_what_is_no_artifact(content: ArtifactContent, why: Reason) -> None:
    assert reason(lambda: checked_content(content)) is why


def test_bounds_of_artifacts() -> None:
    assert checked_content(ArtifactContent("a", HELLO_DIGEST, 1_000_000, "t", 1)).size_bytes == 1_000_000
    assert checked_content(ArtifactContent("a", HELLO_DIGEST, 0, "t", 1)).size_bytes == 0
    assert checkpoint_content("x" * 503, HELLO_DIGEST, 1, 1).id == "snapshot:" + "x" * 503
    assert reason(lambda: checkpoint_content("x" * 504, HELLO_DIGEST, 1, 1)) is Reason.INVALID_IDENTIFIER


def test_a_ttl_that_cannot_be_counted() -> None:
    story = held()
    content = hello(ttl_ms=9_007_199_254_740_991)
    assert reason(lambda: put_artifact(story.record, story.holder, content, 1_000)) is Reason.TTL_RANGE


def test_a_checkpoint_is_one_write() -> None:
    story = held()
    content = checkpoint_content("one", HELLO_DIGEST, 5, 50)
    revision = story.record.revision

    def put() -> Decision[Snapshot]:
        return put_checkpoint(story.record, story.holder, "one", content, 1_000)

    assert story.apply(put()) == Snapshot("one", "snapshot:one", HELLO_DIGEST)
    assert story.record.revision == revision + 1
    assert put().written is False
    assert readable_snapshot(story.record, "one", 1_049).digest == HELLO_DIGEST
    assert reason(lambda: readable_snapshot(story.record, "one", 1_050)) is Reason.ARTIFACT_EXPIRED
    assert reason(lambda: readable_snapshot(story.record, "two", 1_000)) is Reason.SNAPSHOT_NOT_FOUND
    changed = checkpoint_content("one", OTHER_DIGEST, 5, 50)
    refusal = reason(lambda: put_checkpoint(story.record, story.holder, "one", changed, 1_000))
    assert refusal is Reason.ARTIFACT_IMMUTABLE


def test_an_extension_changes_by_revision() -> None:
    story = held()

    def update(value: str | None, expected: int | None) -> Extension | None:
        text = None if value is None else CanonicalJson(value)
        return story.apply(update_extension(story.record, "slot", text, 1_000, expected_revision=expected))

    assert update("1", 0) == Extension("slot", 1, CanonicalJson("1"))
    assert update("1", 0) == Extension("slot", 1, CanonicalJson("1"))
    assert update("2", 1) == Extension("slot", 2, CanonicalJson("2"))
    refusal = refused(lambda: update("3", 1))
    assert (refusal.reason, refusal.details) == (Reason.EXTENSION_CONFLICT, {"current_revision": "2"})
    assert update(None, 2) is None
    assert update(None, 2) is None
    assert "slot" not in story.record.extensions


def test_an_extension_under_a_lease() -> None:
    story = held()

    def call(holder: Holder) -> Decision[Extension | None]:
        return update_extension(story.record, "slot", CanonicalJson("1"), 1_000, holder=holder)

    assert call(story.holder).answer == Extension("slot", 1, CanonicalJson("1"))
    assert reason(lambda: call(Holder("worker-2", 1))) is Reason.LEASE_LOST


@pytest.mark.parametrize("name", ["agentium.records.v1", "sealwork.anything"])
def test_slots_of_the_service(name: str) -> None:
    story = held()
    call = lambda: update_extension(story.record, name, CanonicalJson("1"), 1_000)  # noqa: E731
    assert reason(call) is Reason.RESERVED_EXTENSION


def test_retention() -> None:
    story = held()
    assert not purgeable(story.record, 9_999)
    story.complete()
    assert purgeable(story.record, 1_001)
    assert not purgeable(story.record, 1_000)
    assert tombstone(story.record, 2_000) == Tombstone(story.record.key, story.record.digest, 2_000)


def test_a_rewritten_audit_is_refused() -> None:
    story = held()
    story.prepare()
    before = story.record
    story.claim_count = 7
    forged = Story.begin().record
    with pytest.raises(DomainError) as refusal:
        check_succession(before, forged)
    assert refusal.value.reason in {Reason.INVARIANT, Reason.ILLEGAL_TRANSITION}
