from service_common.clocks import ManualClock
from service_common.nonces import MemoryNonceLedger


async def test_a_nonce_is_good_once() -> None:
    ledger = MemoryNonceLedger(ManualClock(0))
    assert await ledger.use_nonce("a", "n", 1_000)
    assert not await ledger.use_nonce("a", "n", 1_000)


async def test_callers_do_not_share_nonces() -> None:
    ledger = MemoryNonceLedger(ManualClock(0))
    assert await ledger.use_nonce("a", "n", 1_000)
    assert await ledger.use_nonce("b", "n", 1_000)


async def test_a_nonce_is_remembered_for_its_time_to_live() -> None:
    clock = ManualClock(0)
    ledger = MemoryNonceLedger(clock)
    assert await ledger.use_nonce("a", "n", 1_000)
    clock.advance(999)
    assert not await ledger.use_nonce("a", "n", 1_000)
    clock.advance(1)
    assert await ledger.use_nonce("a", "n", 1_000)


async def test_a_refused_use_does_not_prolong_the_time_to_live() -> None:
    clock = ManualClock(0)
    ledger = MemoryNonceLedger(clock)
    assert await ledger.use_nonce("a", "n", 1_000)
    clock.advance(500)
    assert not await ledger.use_nonce("a", "n", 1_000)
    clock.advance(500)
    assert await ledger.use_nonce("a", "n", 1_000)


async def test_expired_nonces_are_forgotten_whatever_their_order() -> None:
    clock = ManualClock(0)
    ledger = MemoryNonceLedger(clock)
    for number in range(100):
        assert await ledger.use_nonce("a", f"n{number}", 1_000 + number % 7)
    clock.advance(2_000)
    for number in range(30):
        assert await ledger.use_nonce("b", f"n{number}", 100_000)
    assert len(ledger) == 30


async def test_no_single_use_pays_for_all_that_has_expired() -> None:
    clock = ManualClock(0)
    ledger = MemoryNonceLedger(clock)
    for number in range(100):
        assert await ledger.use_nonce("a", f"n{number}", 1_000)
    clock.advance(2_000)
    assert await ledger.use_nonce("b", "n", 1_000)
    assert len(ledger) == 97


async def test_an_expired_nonce_is_good_again_before_it_is_cleared_up() -> None:
    clock = ManualClock(0)
    ledger = MemoryNonceLedger(clock)
    for number in range(100):
        assert await ledger.use_nonce("a", f"n{number}", 1_000)
    clock.advance(2_000)
    assert await ledger.use_nonce("a", "n99", 1_000)
    assert not await ledger.use_nonce("a", "n99", 1_000)
    # Clearing up the older entry of the same nonce leaves the newer one alone.
    for number in range(100):
        await ledger.use_nonce("b", f"n{number}", 1_000)
    assert not await ledger.use_nonce("a", "n99", 1_000)
