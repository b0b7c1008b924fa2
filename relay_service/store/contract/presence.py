"""Reference cases about presence, and the nonces. Numbers are those of the reference's list."""
# ruff: noqa: S101

from relay_service.core.model import Audience, Capability, WithheldKind
from relay_service.store.contract.scene import StoreHarness, device, presence


def capability(model: str) -> Capability:
    return Capability("llm.generate", "desk", "llamacpp", "http", model, Audience.PRIVATE, ("other",))


class PresenceCases:
    """What is known of devices: a cache, never an authority."""

    async def test_31_presence_is_remembered(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        await store.seen(presence(capabilities=(capability("llama-3"),)))
        known = await store.presence("runner_1")
        assert known is not None
        assert (known.runner_id, known.owner) == ("runner_1", "alice")
        assert known.device == device()
        assert known.capabilities == (capability("llama-3"),)

    async def test_32_the_matrix_is_replaced(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        await store.seen(presence(capabilities=(capability("old"),)))
        await store.seen(presence(capabilities=(capability("new"),)))
        known = await store.presence("runner_1")
        assert known is not None
        assert [row.model for row in known.capabilities] == ["new"]

    async def test_33_an_empty_matrix_is_kept(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        await store.seen(presence(capabilities=(capability("old"),)))
        await store.seen(presence())
        known = await store.presence("runner_1")
        assert known is not None
        assert known.capabilities == ()

    async def test_34_withheld_kinds_round_trip(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        withheld = WithheldKind("llm.chat", (("desk", Audience.PRIVATE), ("attic", Audience.TEAM)))
        await store.seen(presence(withheld=(withheld,)))
        known = await store.presence("runner_1")
        assert known is not None
        assert [row.kind for row in known.withheld] == ["llm.chat"]
        assert known.withheld[0].claimants == (("desk", Audience.PRIVATE), ("attic", Audience.TEAM))
        await store.seen(presence())
        known = await store.presence("runner_1")
        assert known is not None
        assert known.withheld == ()

    async def test_35_presence_is_stamped_by_the_stores_clock(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        before = await store.now()
        first = await store.seen(presence(last_seen_at_ms=1))
        second = await store.seen(presence(last_seen_at_ms=1))
        assert first.last_seen_at_ms >= before
        assert second.last_seen_at_ms >= first.last_seen_at_ms
        known = await store.presence("runner_1")
        assert known is not None
        assert known.last_seen_at_ms == second.last_seen_at_ms

    async def test_36_everyone(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        await store.seen(presence("runner_1"))
        await store.seen(presence("runner_2", owner="bob", device=device(2)))
        everyone = {known.runner_id: known.owner for known in await store.everyone()}
        assert everyone == {"runner_1": "alice", "runner_2": "bob"}

    async def test_37_an_unknown_runner(self, store_harness: StoreHarness) -> None:
        assert await store_harness.store.presence("runner_9") is None

    async def test_gap_presence_is_forgotten_after_an_hour(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        await store.seen(presence("runner_1"))
        await store_harness.advance(3_590_000)
        assert await store.presence("runner_1") is not None
        await store_harness.advance(10_000)
        assert await store.presence("runner_1") is None
        assert list(await store.everyone()) == []

    async def test_gap_seen_again_lasts_an_hour_again(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        await store.seen(presence("runner_1"))
        await store_harness.advance(3_000_000)
        await store.seen(presence("runner_1"))
        await store_harness.advance(3_000_000)
        assert await store.presence("runner_1") is not None

    async def test_difference_10_owner_and_keys_are_replaced_too(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        await store.seen(presence("runner_1"))
        await store.seen(presence("runner_1", owner="bob", device=device(7)))
        known = await store.presence("runner_1")
        assert known is not None
        assert (known.owner, known.device) == ("bob", device(7))

    async def test_difference_15_a_nonce_is_good_once(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        assert await store.use_nonce("runner_1", "n-1", 240_000) is True
        assert await store.use_nonce("runner_1", "n-1", 240_000) is False
        assert await store.use_nonce("runner_1", "n-2", 240_000) is True
        assert await store.use_nonce("runner_2", "n-1", 240_000) is True

    async def test_difference_15_a_nonce_is_kept_for_its_time(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        assert await store.use_nonce("runner_1", "n-1", 10_000) is True
        await store_harness.advance(9_000)
        assert await store.use_nonce("runner_1", "n-1", 10_000) is False
        await store_harness.advance(1_000)
        assert await store.use_nonce("runner_1", "n-1", 10_000) is True

    async def test_nonces_of_joined_names_do_not_collide(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        assert await store.use_nonce("a:b", "c", 10_000) is True
        assert await store.use_nonce("a", "b:c", 10_000) is True
