"""Cases about what several relays on one store agree on: streams of devices, the projection."""
# ruff: noqa: S101

from relay_service.core.model import Change, ProjectionShared, SessionOpened
from relay_service.store.base import SharedProjection
from relay_service.store.contract.scene import StoreHarness


class RelayCases:
    """Epochs of streams and the shared projection."""

    async def test_epochs_of_a_device_grow(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        before = await store.now()
        first = await store.open_session("runner_1", "session-1")
        second = await store.open_session("runner_1", "session-2")
        assert before <= first < second

    async def test_epochs_grow_over_a_long_silence(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        first = await store.open_session("runner_1", "session-1")
        await store_harness.advance(3_600_001)
        assert await store.open_session("runner_1", "session-2") > first

    async def test_an_opened_session_is_told(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        heard: list[Change] = []
        store.listen(heard.append)
        epoch = await store.open_session("runner_1", "session-1")
        assert heard == [SessionOpened("runner_1", "session-1", epoch)]

    async def test_no_projection_is_shared_at_first(self, store_harness: StoreHarness) -> None:
        assert await store_harness.store.shared_projection() is None

    async def test_a_shared_projection_round_trips_and_is_told(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        heard: list[Change] = []
        store.listen(heard.append)
        assert await store.share_projection(7, b'{"sites": "\xc3\xa4"}')
        assert await store.shared_projection() == SharedProjection(7, b'{"sites": "\xc3\xa4"}')
        assert heard == [ProjectionShared(7)]

    async def test_an_older_projection_is_not_shared(self, store_harness: StoreHarness) -> None:
        store = store_harness.store
        assert await store.share_projection(7, b"seven")
        heard: list[Change] = []
        store.listen(heard.append)
        assert not await store.share_projection(7, b"another seven")
        assert not await store.share_projection(6, b"six")
        assert await store.shared_projection() == SharedProjection(7, b"seven")
        assert heard == []
        assert await store.share_projection(8, b"eight")
        assert await store.shared_projection() == SharedProjection(8, b"eight")
