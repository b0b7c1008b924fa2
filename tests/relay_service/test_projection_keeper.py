"""Decisions are carried out one after the other, and what is told of them is what happened."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from relay_service import projection_edits as edits
from relay_service import projection_writing
from relay_service.core.projection import Consent
from relay_service.projection import FileProjection
from relay_service.projection_audit import AuditTrail
from relay_service.projection_edits import EditError
from relay_service.projection_file import format_projection, load_projection
from relay_service.projection_keeper import (
    ProjectionConflictError,
    ProjectionReadOnlyError,
)
from relay_service.store.memory import MemoryRoutingStore
from service_common.clocks import ManualClock
from tests.relay_service.kept_projection import (
    BASE,
    DEVICE,
    SITE,
    Relay,
    content,
    grant,
    lines,
    mode,
    sha256,
    write,
    write_text,
)
from tests.relay_service.projection_documents import made_identity


@pytest.fixture
def store(manual_clock: ManualClock) -> MemoryRoutingStore:
    return MemoryRoutingStore(manual_clock.now_ms, lambda: "lease")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "projection.json"
    path.write_text(format_projection(BASE))
    path.chmod(0o640)
    return path


@pytest.fixture
async def relay(store: MemoryRoutingStore, path: Path, manual_clock: ManualClock) -> Relay:
    return await Relay(store, path, manual_clock).start()


# -- the file and its trail -------------------------------------------------------------


async def test_a_change_is_in_force_in_the_file_and_in_the_trail(relay: Relay, path: Path) -> None:
    before = sha256(path)
    kept = await relay.keeper.change("olga", grant("bob"))
    assert (kept.revision, kept.summary, kept.changed) == (2, "bob consents to demo", True)
    assert relay.owners() == ["alice", "bob"]
    written = load_projection(path)
    assert [consent.owner for consent in written.consents] == ["alice", "bob"]
    assert written.revision == 2
    assert mode(path) == 0o640
    assert lines(path) == [
        {
            "time": "2023-11-14T22:13:20.000Z",
            "actor": "file",
            "changes": ["first seen"],
            "revision": 1,
            "sha256": before,
            "previousSha256": before,
        },
        {
            "time": "2023-11-14T22:13:20.000Z",
            "actor": "olga",
            "changes": ["consent of bob to demo given"],
            "revision": 2,
            "sha256": sha256(path),
            "previousSha256": before,
        },
    ]
    assert mode(path.with_name("projection.json.audit.jsonl")) == 0o600


async def test_what_the_relay_wrote_is_no_edit(relay: Relay, path: Path) -> None:
    await relay.keeper.change("olga", grant("bob"))
    assert isinstance(relay.source, FileProjection)
    for _ in range(3):
        await relay.source.poll()
    assert relay.source.current.revision == 2
    assert len(lines(path)) == 2


async def test_what_is_as_wanted_changes_nothing(relay: Relay, path: Path) -> None:
    kept = await relay.keeper.change("olga", grant("alice"))
    assert (kept.revision, kept.changed) == (1, False)
    assert len(lines(path)) == 1


async def test_a_change_that_does_not_fit_changes_nothing(relay: Relay, path: Path) -> None:
    before = content(path)
    with pytest.raises(EditError, match="no device has the runner id laptop"):
        await relay.keeper.change("olga", lambda current: edits.revoke_device(current, "laptop"))
    assert (content(path), len(lines(path))) == (before, 1)


async def test_an_edit_by_hand_is_in_the_trail(relay: Relay, path: Path) -> None:
    assert isinstance(relay.source, FileProjection)
    edited = replace(BASE, consents=(), revoked=(("alice", "demo"),))
    write(path, edited)
    await relay.source.poll()
    assert relay.source.current.revision == 2
    (line,) = lines(path)[1:]
    assert (line["actor"], line["revision"], line["sha256"]) == ("file", 2, sha256(path))
    assert line["changes"] == ["consent of alice to demo removed", "consent of alice to demo revoked"]


async def test_another_spelling_is_in_the_trail_and_changes_nothing(relay: Relay, path: Path) -> None:
    assert isinstance(relay.source, FileProjection)
    write_text(path, json.dumps(json.loads(content(path))))
    await relay.source.poll()
    assert relay.source.current.revision == 1
    assert lines(path)[1]["sha256"] == sha256(path)
    assert lines(path)[1]["changes"] == ["the same decisions in other words"]


async def test_an_edit_that_nobody_has_seen_yet_is_not_overwritten(relay: Relay, path: Path) -> None:
    write(path, replace(BASE, consents=(*BASE.consents, Consent("carol", "demo"))))
    await relay.keeper.change("olga", grant("bob"))
    assert relay.owners() == ["alice", "carol", "bob"]
    assert [line["actor"] for line in lines(path)] == ["file", "file", "olga"]
    assert [line["revision"] for line in lines(path)] == [1, 2, 3]


async def test_a_broken_edit_is_not_overwritten_either(relay: Relay, path: Path) -> None:
    write_text(path, "{")
    with pytest.raises(
        ProjectionReadOnlyError, match="is gone or holds an edit that is broken; mend it first"
    ):
        await relay.keeper.change("olga", grant("bob"))
    assert content(path) == b"{"
    assert relay.owners() == ["alice"]


@pytest.mark.parametrize("what", ["replacement", "trail"])
async def test_a_file_that_cannot_be_written_keeps_everything_as_it_is(
    relay: Relay, path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    if what == "trail":
        monkeypatch.setattr(AuditTrail, "append", fail)
    else:
        monkeypatch.setattr(projection_writing, "replacement", fail)
    before = content(path)
    with pytest.raises(ProjectionReadOnlyError, match=r"\(Read-only file system\); nothing was changed"):
        await relay.keeper.change("olga", grant("bob"))
    assert (content(path), relay.owners(), relay.source.current.revision) == (before, ["alice"], 1)
    monkeypatch.undo()
    assert (await relay.keeper.change("olga", grant("bob"))).revision == 2
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []


async def test_many_changes_at_once_are_one_after_the_other(relay: Relay, path: Path) -> None:
    people = [f"person-{number}" for number in range(30)]
    kept = await asyncio.gather(*(relay.keeper.change("olga", grant(person)) for person in people))
    assert sorted(each.revision for each in kept) == list(range(2, 32))
    assert sorted(load_projection(path).consents, key=lambda each: each.owner) == sorted(
        [Consent("alice", "demo"), *(Consent(person, "demo") for person in people)],
        key=lambda each: each.owner,
    )
    assert [line["revision"] for line in lines(path)] == list(range(1, 32))


async def test_a_caller_that_goes_away_leaves_nothing_half_done(relay: Relay, path: Path) -> None:
    for number in range(10):
        call = asyncio.ensure_future(relay.keeper.change("olga", grant(f"person-{number}")))
        await asyncio.sleep(0)
        call.cancel()
    await relay.keeper.settle()
    assert load_projection(path) == relay.source.current
    assert lines(path)[-1]["sha256"] == sha256(path)
    assert (await relay.keeper.change("olga", grant("bob"))).changed


async def test_a_whole_projection_says_what_changed(relay: Relay, path: Path) -> None:
    new = replace(BASE, sites=(replace(SITE, identity=made_identity(3)),), consents=())
    kept = await relay.keeper.replace("olga", new, 1)
    assert kept.revision == 2
    key_id = made_identity(3).key_id
    assert lines(path)[1]["changes"] == [
        f"site demo has the key {key_id}",
        "consent of alice to demo removed",
    ]
    with pytest.raises(ProjectionConflictError) as conflict:
        await relay.keeper.replace("olga", BASE, 1)
    assert conflict.value.revision == 2


async def test_a_torn_last_line_takes_no_other_with_it(
    relay: Relay, store: MemoryRoutingStore, path: Path, manual_clock: ManualClock
) -> None:
    trail = path.with_name("projection.json.audit.jsonl")
    with trail.open("a") as file:
        file.write('{"time": "2023-')
    entry = AuditTrail(path, manual_clock).last()
    assert entry is not None
    assert entry.sha256 == sha256(path)
    await relay.keeper.change("olga", grant("bob"))
    whole = [line for line in trail.read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line)["revision"] for line in whole] == [1, 2]


# -- devices ----------------------------------------------------------------------------


async def test_a_device_is_registered_once_under_a_minted_name(relay: Relay) -> None:
    first = await relay.keeper.register("alice", DEVICE, "Alice's Laptop!", "olga")
    group = DEVICE.key_id.split("-")[1].lower()
    assert first == f"alice-s-laptop-{group}"
    assert await relay.keeper.register("alice", DEVICE, "another label", "erin") == first
    assert relay.source.current.revision == 2
    with pytest.raises(EditError, match=f"this key belongs to device {first} of alice"):
        await relay.keeper.register("bob", DEVICE, "mine", "olga")
    await relay.keeper.change("olga", lambda current: edits.revoke_device(current, first))
    with pytest.raises(EditError, match="is revoked: it needs new keys"):
        await relay.keeper.register("alice", DEVICE, "again", "olga")


async def test_names_that_are_taken_are_not_given_again(relay: Relay) -> None:
    group, next_group = DEVICE.key_id.lower().split("-")[1:3]
    taken = made_identity(4)
    await relay.keeper.change(
        "olga", lambda current: edits.add_device(current, f"device-{group}", "bob", taken)
    )
    assert await relay.keeper.register("alice", DEVICE, "机器", "olga") == f"device-{group}-{next_group}"
