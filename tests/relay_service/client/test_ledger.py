"""What a device remembers over a restart: used grants, and work done for others."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_service.client.grants import Grant
from relay_service.client.ledger import Charge, Ledger, LedgerError
from relay_service.client.spent_grants import SpentGrants
from service_common.clocks import ManualClock

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def grant(name: str, issued_at_ms: int = START_MS) -> Grant:
    return Grant(
        grant_id=name,
        job_id="j",
        site="s",
        user="bob",
        owner="alice",
        purpose="default",
        kind="llm.generate",
        service="desk",
        issued_at_ms=issued_at_ms,
    )


def ledger(path: Path | None, clock: ManualClock | None = None) -> Ledger:
    opened = Ledger(path, clock or ManualClock(START_MS))
    opened.open()
    return opened


async def test_a_grant_is_used_once_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger"
    first = ledger(path)
    assert not first.is_spent(grant("a"))
    assert await first.begin(grant("a"), None) is None
    assert first.is_spent(grant("a"))
    with pytest.raises(ValueError, match="spent"):
        await first.begin(grant("a"), None)
    first.close()
    second = ledger(path)

    assert second.is_spent(grant("a"))
    assert not second.is_spent(grant("b"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_two_jobs_that_begin_at_once_do_not_share_a_grant(tmp_path: Path) -> None:
    shared = ledger(tmp_path / "ledger")
    first = shared.begin(grant("a"), None)
    first.send(None)

    with pytest.raises(ValueError, match="spent"):
        await shared.begin(grant("a"), None)
    first.close()


async def test_work_for_others_is_counted_over_restarts(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    path = tmp_path / "ledger"
    first = ledger(path, clock)
    number = await first.begin(None, Charge("paid", 1_000))
    assert number is not None
    await first.settle(number, 30)
    await first.begin(None, Charge("free", 7))
    clock.advance(HOUR_MS)
    await first.begin(None, Charge("paid", 5))
    first.close()
    second = ledger(path, clock)

    assert (second.others_within_hour, second.others_within_day) == (1, 3)
    assert second.characters_within_day("paid") == 35
    clock.advance(23 * HOUR_MS - 1)
    assert (second.others_within_hour, second.others_within_day) == (0, 3)
    clock.advance(1)
    assert second.others_within_day == 1


async def test_a_clock_that_is_set_back_frees_no_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first = ledger(path, ManualClock(START_MS + HOUR_MS))
    await first.begin(None, Charge("free", 0))
    first.close()

    assert ledger(path, ManualClock(START_MS)).others_within_hour == 1


async def test_a_line_that_was_cut_short_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first = ledger(path)
    await first.begin(grant("a"), None)
    first.close()
    with path.open("ab") as file:
        file.write(b'{"grant": "b", "iss')
    second = ledger(path)
    await second.begin(grant("c"), None)
    second.close()
    third = ledger(path)

    assert third.is_spent(grant("a"))
    assert not third.is_spent(grant("b"))
    assert third.is_spent(grant("c"))


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b'{"grant": 1}\n', b'{"use": 1}\n'])
def test_a_damaged_line_is_not_passed_over(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(line)

    with pytest.raises(LedgerError, match="damaged"):
        ledger(path)


async def test_what_cannot_be_written_does_not_begin(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    broken = ledger(path)
    path.mkdir()

    with pytest.raises(LedgerError, match="Is a directory"):
        await broken.begin(grant("a"), None)


async def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay_service.client.ledger._LINES", 400)
    clock = ManualClock(START_MS)
    path = tmp_path / "ledger"
    busy = ledger(path, clock)
    for number in range(1_000):
        await busy.begin(grant(f"g-{number}", clock.now_ms()), None)
        clock.advance(1_000)
    busy.close()
    again = ledger(path, clock)

    assert len(path.read_bytes().splitlines()) <= 702
    assert again.is_spent(grant("g-999", START_MS + 999_000))
    assert again.is_spent(grant("g-0", START_MS))
    assert not again.is_spent(grant("new", clock.now_ms()))


def test_what_is_forgotten_is_never_accepted_again() -> None:
    spent = SpentGrants(remembered_ms=300_000)
    spent.add("a", 1_000)
    spent.add("b", 2_000)
    spent.add("c", 301_500)

    assert dict(spent) == {"b": 2_000, "c": 301_500}
    assert spent.is_spent("a", 1_000)
    assert spent.is_spent("never seen", 1_000)
    assert not spent.is_spent("never seen", 1_001)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 2_000)), max_size=60))
def test_no_grant_is_used_twice_in_whatever_order_they_come(grants: list[tuple[int, int]]) -> None:
    spent = SpentGrants(remembered_ms=300)
    used: list[tuple[str, int]] = []
    for number, at_ms in grants:
        # The instant is signed with the id, so that it belongs to it.
        name = f"{number} at {at_ms}"
        if not spent.is_spent(name, at_ms):
            assert (name, at_ms) not in used
            spent.add(name, at_ms)
            used.append((name, at_ms))

    assert all(spent.is_spent(*each) for each in used)
