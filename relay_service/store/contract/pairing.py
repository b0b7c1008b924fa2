"""Cases about pairings: codes, replacement, the cap, decisions, and the end of a code."""
# ruff: noqa: S101

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import Change, PairingDecided
from relay_service.core.pairing import (
    DENIAL,
    Decision,
    Pairing,
    PairingIntroduction,
    PairingRefusal,
    PairingState,
    Platform,
)
from relay_service.store.contract.scene import StoreHarness, device
from relay_service.store.pairings import FoundPairing, PairingStore

LIFE_MS = 600_000
MOST = 500
APPROVAL = Decision(PairingState.APPROVED, "alice", "runner-7")


def introduction(number: int = 1) -> PairingIntroduction:
    identity = PublicIdentity(number.to_bytes(32), bytes([9]) * 32, bytes([200]) * 64)
    return PairingIntroduction(identity, f"Schreibtisch {number} ✎", Platform.LINUX, "1.4.0")


async def begun(
    store: PairingStore, name: str = "id-1", user_code: str = "AAAA-0001", number: int = 1
) -> Pairing:
    answer = await store.begin(name, user_code, introduction(number))
    assert isinstance(answer, Pairing)
    return answer


async def filled(store: PairingStore, count: int = MOST) -> None:
    for number in range(1, count + 1):
        await begun(store, f"id-{number}", f"AAAA-{number:04}", number)


class PairingCases:
    """What all pairing stores do."""

    async def test_pairing_is_found_by_either_code(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        now_ms = await store_harness.store.now()
        pairing = await begun(store)
        assert pairing == Pairing("id-1", "AAAA-0001", introduction(), pairing.expires_at_ms)
        assert now_ms + LIFE_MS <= pairing.expires_at_ms <= now_ms + LIFE_MS + 1_000
        for found in (await store.find("id-1"), await store.find_by_user_code("AAAA-0001")):
            assert found is not None
            assert found.pairing == pairing
            assert LIFE_MS - 1_000 <= found.remaining_ms <= LIFE_MS

    async def test_pairing_of_unknown_codes_is_none(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await begun(store)
        assert await store.find("id-2") is None
        assert await store.find("") is None
        assert await store.find("AAAA-0001") is None
        assert await store.find_by_user_code("id-1") is None
        assert await store.find_by_user_code("") is None
        assert await store.decide("id-2", APPROVAL) is PairingRefusal.NOT_FOUND

    async def test_pairing_expires(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await begun(store)
        await store_harness.advance(599_000)
        assert await store.find("id-1") is not None
        await store_harness.advance(1_000)
        assert await store.find("id-1") is None
        assert await store.find_by_user_code("AAAA-0001") is None
        assert list(await store.pending()) == []
        assert await store.decide("id-1", APPROVAL) is PairingRefusal.NOT_FOUND

    async def test_pairing_that_was_approved_expires_too(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await begun(store)
        await store.decide("id-1", APPROVAL)
        await store_harness.advance(LIFE_MS)
        assert await store.find("id-1") is None

    async def test_pairing_by_the_same_key_replaces(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await begun(store)
        second = await begun(store, "id-2", "AAAA-0002")
        assert await store.find("id-1") is None
        assert await store.find_by_user_code("AAAA-0001") is None
        assert list(await store.pending()) == [second]

    async def test_pairing_by_the_same_key_replaces_a_decided_one(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await begun(store)
        await store.decide("id-1", DENIAL)
        second = await begun(store, "id-2", "AAAA-0002")
        assert await store.find("id-1") is None
        assert list(await store.pending()) == [second]

    async def test_pairing_may_take_the_user_code_that_it_replaces(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await begun(store)
        second = await begun(store, "id-2", "AAAA-0001")
        found = await store.find_by_user_code("AAAA-0001")
        assert found is not None
        assert found.pairing == second

    async def test_pairing_takes_no_code_of_another(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        first = await begun(store)
        assert await store.begin("id-2", "AAAA-0001", introduction(2)) is PairingRefusal.CODE_TAKEN
        assert await store.begin("id-1", "AAAA-0002", introduction(2)) is PairingRefusal.CODE_TAKEN
        assert list(await store.pending()) == [first]
        await store_harness.advance(LIFE_MS)
        await begun(store, "id-1", "AAAA-0001", 2)

    async def test_pairing_ends_at_five_hundred(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await filled(store)
        assert await store.begin("id-x", "XXXX-XXXX", introduction(501)) is PairingRefusal.AT_CAPACITY
        assert await store.find("id-x") is None
        # Capacity counts after the replacement: a key that waits already may start again.
        await begun(store, "id-y", "YYYY-YYYY", 1)
        assert await store.find("id-1") is None
        assert len(await store.pending()) == MOST

    async def test_pairing_capacity_does_not_latch(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await filled(store)
        await store_harness.advance(LIFE_MS)
        await begun(store, "id-x", "XXXX-XXXX", 501)
        assert [pairing.pairing_id for pairing in await store.pending()] == ["id-x"]

    async def test_pairing_capacity_counts_what_waits(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        await filled(store)
        await store.decide("id-3", DENIAL)
        await store.decide("id-4", APPROVAL)
        await begun(store, "id-x", "XXXX-XXXX", 501)
        await begun(store, "id-y", "YYYY-YYYY", 502)
        assert await store.begin("id-z", "ZZZZ-ZZZZ", introduction(503)) is PairingRefusal.AT_CAPACITY
        # The key of a decided one frees no place.
        assert await store.begin("id-z", "ZZZZ-ZZZZ", introduction(3)) is PairingRefusal.AT_CAPACITY
        assert await store.find("id-3") is not None

    async def test_pairing_that_waits_is_listed_oldest_first(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        for number in (3, 1, 2):
            await begun(store, f"id-{number}", f"AAAA-{number:04}", number)
            await store_harness.advance(5)
        assert [pairing.pairing_id for pairing in await store.pending()] == ["id-3", "id-1", "id-2"]
        await store.decide("id-1", DENIAL)
        assert [pairing.pairing_id for pairing in await store.pending()] == ["id-3", "id-2"]

    async def test_pairing_decision_is_kept_and_told(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        heard: list[Change] = []
        store_harness.store.listen(heard.append)
        pairing = await begun(store)
        decided = await store.decide("id-1", APPROVAL)
        assert decided == Pairing("id-1", "AAAA-0001", introduction(), pairing.expires_at_ms, APPROVAL)
        found = await store.find("id-1")
        assert isinstance(found, FoundPairing)
        assert found.pairing == decided
        assert heard == [PairingDecided("id-1")]

    async def test_pairing_keeps_its_first_decision(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        heard: list[Change] = []
        await begun(store)
        await store.decide("id-1", DENIAL)
        store_harness.store.listen(heard.append)
        for later in (APPROVAL, DENIAL):
            decided = await store.decide("id-1", later)
            assert isinstance(decided, Pairing)
            assert decided.decision == DENIAL
        assert heard == []

    async def test_pairing_of_another_key_is_left_alone(self, store_harness: StoreHarness) -> None:
        store = store_harness.store.pairings
        first = await begun(store)
        second = await begun(store, "id-2", "AAAA-0002", 2)
        await store.decide("id-2", APPROVAL)
        found = await store.find("id-1")
        assert found is not None
        assert found.pairing == first
        assert second.introduction.identity != device()
