"""Relays on one store agree, whichever of their files is older, and their files follow."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from relay_service.core.projection import Consent
from relay_service.projection import FileProjection, ProjectionSource
from relay_service.projection_exchange import ProjectionExchange
from relay_service.projection_file import format_projection, load_projection
from relay_service.projection_keeper import ProjectionKeeper
from relay_service.store.memory import MemoryRoutingStore
from relay_service.store_guard import store_unavailable
from service_common.background import Background
from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from tests.relay_service.kept_projection import BASE, Relay, content, grant, lines, sha256, write, write_text


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


# -- several relays ---------------------------------------------------------------------


async def test_a_change_at_one_relay_is_in_the_file_of_the_other(
    relay: Relay, store: MemoryRoutingStore, tmp_path: Path, manual_clock: ManualClock
) -> None:
    (tmp_path / "second").mkdir()
    other_path = tmp_path / "second" / "projection.json"
    write(other_path, BASE)
    other = await Relay(store, other_path, manual_clock).start()
    without = await Relay(store, None, manual_clock).start()
    await relay.keeper.change("olga", grant("bob"))
    for each in (other, without):
        await each.background.settle()
        assert each.owners() == ["alice", "bob"]
        assert each.source.current.revision == 2
    assert load_projection(other_path).revision == 2
    assert (lines(other_path)[-1]["actor"], lines(other_path)[-1]["sha256"]) == ("relays", sha256(other_path))
    await without.keeper.change("erin", grant("carol"))
    await relay.background.settle()
    assert load_projection(relay.source.path).revision == 3  # type: ignore[attr-defined]


async def test_relays_of_one_machine_may_have_one_file(
    relay: Relay, store: MemoryRoutingStore, path: Path, manual_clock: ManualClock
) -> None:
    other = await Relay(store, path, manual_clock).start()
    both = (relay, other)
    for number in range(6):
        await both[number % 2].keeper.change(f"olga-{number % 2}", grant(f"person-{number}"))
    for each in both:
        await each.background.settle()
        assert isinstance(each.source, FileProjection)
        await each.source.poll()
        assert each.source.current.revision == 7
        assert each.owners() == ["alice", *(f"person-{number}" for number in range(6))]
    write(path, BASE)
    for each in both:
        assert isinstance(each.source, FileProjection)
        await each.source.poll()
        await each.background.settle()
        assert (each.owners(), each.source.current.revision) == (["alice"], 8)
    actors = [line["actor"] for line in lines(path)]
    assert actors == ["file", *["olga-0", "olga-1"] * 3, "file"]


async def test_an_outdated_file_undoes_nothing(
    relay: Relay, store: MemoryRoutingStore, path: Path, tmp_path: Path, manual_clock: ManualClock
) -> None:
    """A relay was down while others decided; nobody touched its file."""
    other = await Relay(store, None, manual_clock).start()
    await relay.stop()
    await other.keeper.change("olga", grant("bob"))
    again = Relay(store, path, manual_clock)
    assert isinstance(again.source, FileProjection)
    assert again.source.edited is False
    with capture_logs() as events:
        await again.start()
    assert "projection_outdated" in [event["event"] for event in events]
    assert (again.owners(), again.source.current.revision) == (["alice", "bob"], 2)
    assert load_projection(path).revision == 2
    await other.background.settle()
    assert other.owners() == ["alice", "bob"]


async def test_a_file_that_was_edited_while_the_relay_was_down_counts(
    relay: Relay, store: MemoryRoutingStore, path: Path, manual_clock: ManualClock
) -> None:
    other = await Relay(store, None, manual_clock).start()
    await relay.stop()
    await other.keeper.change("olga", grant("bob"))
    write(path, replace(BASE, consents=(Consent("carol", "demo"),)))
    again = Relay(store, path, manual_clock)
    assert isinstance(again.source, FileProjection)
    assert again.source.edited is True
    await again.start()
    await other.background.settle()
    for each in (again, other):
        assert (each.owners(), each.source.current.revision) == (["carol"], 3)
    assert lines(path)[-1]["changes"] == ["edited while no relay watched it"]


async def test_a_file_without_a_trail_is_judged_by_its_revision_and_kept(
    store: MemoryRoutingStore, path: Path, tmp_path: Path, manual_clock: ManualClock
) -> None:
    other = await Relay(store, None, manual_clock).start()
    await store.share_projection(5, format_projection(replace(BASE, consents=(), revision=5)).encode())
    await other.background.settle()
    before = content(path)
    newcomer = await Relay(store, path, manual_clock).start()
    assert (newcomer.owners(), newcomer.source.current.revision) == ([], 5)
    assert content(path.with_name("projection.json.outdated")) == before
    assert load_projection(path).revision == 5


async def test_a_relay_that_died_between_trail_and_file_has_an_unedited_file(
    relay: Relay, store: MemoryRoutingStore, path: Path, manual_clock: ManualClock
) -> None:
    before = content(path)
    await relay.keeper.change("olga", grant("bob"))
    await relay.stop()
    write_text(path, before.decode())
    again = Relay(store, path, manual_clock)
    assert isinstance(again.source, FileProjection)
    assert again.source.edited is False
    await again.start()
    assert (again.owners(), again.source.current.revision) == (["alice", "bob"], 2)
    assert load_projection(path).revision == 2


async def test_a_revision_never_stands_for_two_contents_over_a_restart(
    relay: Relay, path: Path, manual_clock: ManualClock
) -> None:
    """The relay without a shared store knows the revision of an edit from its trail."""
    assert isinstance(relay.source, FileProjection)
    for owner in ("bob", "carol"):
        write(path, replace(BASE, consents=(Consent(owner, "demo"),)))
        await relay.source.poll()
    assert relay.source.current.revision == 3
    assert FileProjection(path, manual_clock).current.revision == 3
    write(path, BASE)
    assert FileProjection(path, manual_clock).current.revision == 4


async def test_a_relay_that_loses_a_race_withdraws_and_decides_on_top(
    relay: Relay, store: MemoryRoutingStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share, raced = store.share_projection, False

    async def after_another(revision: int, document: bytes) -> bool:
        nonlocal raced
        if not raced:
            raced = True
            theirs = replace(BASE, consents=(*BASE.consents, Consent("quick", "demo")), revision=revision)
            assert await share(revision, format_projection(theirs).encode())
        return await share(revision, document)

    monkeypatch.setattr(store, "share_projection", after_another)
    kept = await relay.keeper.change("olga", grant("bob"))
    await relay.background.settle()
    assert kept.revision == 3
    assert relay.owners() == ["alice", "quick", "bob"]
    assert [(line["actor"], line["changes"]) for line in lines(path)[1:]] == [
        ("olga", ["consent of bob to demo given"]),
        ("olga", ["withdrawn: another relay was quicker"]),
        ("relays", ["taken over"]),
        ("olga", ["consent of bob to demo given"]),
    ]
    assert lines(path)[-1]["sha256"] == sha256(path)


async def test_a_store_that_is_away_withdraws_the_change(
    relay: Relay, store: MemoryRoutingStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> bool:
        raise store_unavailable()

    monkeypatch.setattr(store, "share_projection", away)
    before = content(path)
    with pytest.raises(ServiceError, match="STORE_UNAVAILABLE"):
        await relay.keeper.change("olga", grant("bob"))
    assert (content(path), relay.owners()) == (before, ["alice"])
    assert lines(path)[-1]["changes"] == ["withdrawn: the store could not be reached"]
    assert lines(path)[-1]["sha256"] == sha256(path)


async def test_an_edit_by_hand_counts_while_the_store_is_away_and_afterwards(
    relay: Relay,
    store: MemoryRoutingStore,
    path: Path,
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = await Relay(store, None, manual_clock).start()

    async def away(*_: object) -> Any:
        raise store_unavailable()

    assert isinstance(relay.source, FileProjection)
    with monkeypatch.context() as patched:
        patched.setattr(store, "share_projection", away)
        patched.setattr(store, "shared_projection", away)
        write(path, replace(BASE, consents=(Consent("carol", "demo"),)))
        await relay.source.poll()
        assert relay.owners() == ["carol"]
    # The others have decided meanwhile, without having seen the edit.
    await store.share_projection(9, format_projection(replace(BASE, revision=9)).encode())
    await other.background.settle()
    await relay.background.settle()
    relay.exchange.missed()
    await relay.background.settle()
    await other.background.settle()
    assert other.owners() == relay.owners() == ["carol"]
    assert other.source.current.revision == 10


async def test_without_anything_to_keep_it_the_answer_says_so(store: MemoryRoutingStore) -> None:
    source = ProjectionSource(BASE)
    exchange = ProjectionExchange(store, source, Background())
    keeper = ProjectionKeeper(source, exchange, forgetful=True)
    kept = await keeper.change("olga", grant("bob"))
    assert kept.summary == (
        "bob consents to demo; this relay keeps it in its memory alone, so a restart forgets it"
    )
