"""The suite that every blob store passes; it needs pytest with asyncio tests.

An implementation makes a class of `BlobStoreContract` and brings a fixture of the name `blob_harness`.
"""
# ruff: noqa: S101, ARG001

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol

import pytest

from durable_service.blobs.base import BlobStore
from durable_service.blobs.collection import Collected, collect_orphans
from durable_service.core.errors import DomainError, Reason

KEY = "183556fc06263bf660738f3c12e7682e1c7123a43458d13225dd3ff0cb65adaf"
OTHER_KEY = "9c5aaa6747c8eae493ddf5fcdac0187e3d50f96560e16de0960c4356ad212664"
THIRD_KEY = "9b89d36ad94b4edc4bb5ad0fc8dd2d9a56e583165ef50f742f5fc53361e2a92f"
CONTRACT_BYTES = 1_000
START_MS = 1_700_000_000_000


class BlobHarness(Protocol):
    """What an implementation brings to the contract."""

    @property
    def blobs(self) -> BlobStore:
        """A fresh, empty store of at most `CONTRACT_BYTES` a key, its clock at `START_MS`."""

    async def advance(self, milliseconds: int) -> None:
        """Moves the store's clock on; it stands still otherwise."""

    async def reopen(self) -> bool:
        """Opens what the store kept as `blobs`; False when it keeps nothing."""


async def reason(call: Awaitable[object]) -> Reason:
    with pytest.raises(DomainError) as refusal:
        await call
    return refusal.value.reason


class BlobStoreContract:
    """All cases of the contract."""

    @pytest.mark.parametrize("data", [b"hello", b"", b"\x00" * 1_000])
    async def test_bytes_come_back(self, blob_harness: BlobHarness, data: bytes) -> None:
        await blob_harness.blobs.put(KEY, data)
        assert await blob_harness.blobs.get(KEY) == data
        assert await blob_harness.blobs.get(OTHER_KEY) is None

    async def test_the_same_bytes_again(self, blob_harness: BlobHarness) -> None:
        await blob_harness.blobs.put(KEY, b"hello")
        await blob_harness.blobs.put(KEY, b"hello")
        assert await blob_harness.blobs.get(KEY) == b"hello"

    async def test_other_bytes_are_refused_and_the_first_stay(self, blob_harness: BlobHarness) -> None:
        await blob_harness.blobs.put(KEY, b"hello")
        assert await reason(blob_harness.blobs.put(KEY, b"other")) is Reason.BLOB_COLLISION
        assert await reason(blob_harness.blobs.put(KEY, b"")) is Reason.BLOB_COLLISION
        assert await blob_harness.blobs.get(KEY) == b"hello"

    async def test_equal_bytes_at_once(self, blob_harness: BlobHarness) -> None:
        await asyncio.gather(*(blob_harness.blobs.put(KEY, b"hello") for _ in range(10)))
        assert await blob_harness.blobs.get(KEY) == b"hello"

    async def test_one_of_many_different_bytes_wins(self, blob_harness: BlobHarness) -> None:
        puts = (blob_harness.blobs.put(KEY, bytes([number])) for number in range(10))
        answers = await asyncio.gather(*puts, return_exceptions=True)
        winners = [number for number, answer in enumerate(answers) if answer is None]
        assert len(winners) == 1
        assert await blob_harness.blobs.get(KEY) == bytes(winners)

    async def test_deletion(self, blob_harness: BlobHarness) -> None:
        await blob_harness.blobs.put(KEY, b"hello")
        await blob_harness.blobs.delete(KEY)
        await blob_harness.blobs.delete(KEY)
        assert await blob_harness.blobs.get(KEY) is None
        await blob_harness.blobs.put(KEY, b"other")

    async def test_how_large_bytes_may_be(self, blob_harness: BlobHarness) -> None:
        assert await reason(blob_harness.blobs.put(KEY, b"x" * 1_001)) is Reason.ARTIFACT_TOO_LARGE
        assert await blob_harness.blobs.get(KEY) is None

    @pytest.mark.parametrize(
        "key", ["", "a", KEY.upper(), KEY + "0", "../" + KEY[3:], KEY[:-1] + "g", KEY + "\n"]
    )
    async def test_what_is_no_key(self, blob_harness: BlobHarness, key: str) -> None:
        blobs = blob_harness.blobs
        assert await reason(blobs.put(key, b"")) is Reason.FIELD_INVALID
        assert await reason(blobs.get(key)) is Reason.FIELD_INVALID
        assert await reason(blobs.delete(key)) is Reason.FIELD_INVALID
        assert await reason(blobs.delete_if_before(key, 0)) is Reason.FIELD_INVALID

    async def test_old_keys(self, blob_harness: BlobHarness) -> None:
        blobs = blob_harness.blobs
        await blobs.put(KEY, b"old")
        await blobs.put(OTHER_KEY, b"renewed")
        await blob_harness.advance(10)
        await blobs.put(OTHER_KEY, b"renewed")
        assert [key async for key in blobs.keys_before(START_MS)] == []
        assert [key async for key in blobs.keys_before(START_MS + 1)] == [KEY]
        assert sorted([key async for key in blobs.keys_before(START_MS + 11)]) == sorted([KEY, OTHER_KEY])
        assert not await blobs.delete_if_before(OTHER_KEY, START_MS + 10)
        assert not await blobs.delete_if_before(THIRD_KEY, START_MS + 10)
        assert await blobs.delete_if_before(KEY, START_MS + 10)
        assert await blobs.get(KEY) is None
        assert await blobs.get(OTHER_KEY) == b"renewed"

    async def test_orphans_are_collected(self, blob_harness: BlobHarness) -> None:
        blobs = blob_harness.blobs
        for key in (KEY, OTHER_KEY):
            await blobs.put(key, b"x")
        await blob_harness.advance(10)
        await blobs.put(THIRD_KEY, b"young")

        async def referenced(keys: Sequence[str]) -> frozenset[str]:
            return frozenset({OTHER_KEY}).intersection(keys)

        assert await collect_orphans(blobs, referenced, START_MS + 10) == Collected(removed=1, referenced=1)
        assert [await blobs.get(key) for key in (KEY, OTHER_KEY, THIRD_KEY)] == [None, b"x", b"young"]

    async def test_more_orphans_than_are_looked_at_together(self, blob_harness: BlobHarness) -> None:
        blobs = blob_harness.blobs
        for number in range(501):
            await blobs.put(f"{number:064x}", b"x")
        await blob_harness.advance(1)
        asked: list[int] = []

        async def referenced(keys: Sequence[str]) -> frozenset[str]:
            asked.append(len(keys))
            return frozenset({f"{7:064x}"}).intersection(keys)

        assert await collect_orphans(blobs, referenced, START_MS + 1) == Collected(removed=500, referenced=1)
        assert asked == [500, 1]
        assert [key async for key in blobs.keys_before(START_MS + 1)] == [f"{7:064x}"]

    async def test_bytes_put_again_during_a_collection_stay(self, blob_harness: BlobHarness) -> None:
        blobs = blob_harness.blobs
        await blobs.put(KEY, b"x")
        await blob_harness.advance(10)

        async def referenced(keys: Sequence[str]) -> frozenset[str]:
            # A worker comes with the same bytes while the collector asks; it will refer to them next.
            await blobs.put(KEY, b"x")
            return frozenset()

        assert await collect_orphans(blobs, referenced, START_MS + 10) == Collected(removed=0, referenced=0)
        assert await blobs.get(KEY) == b"x"

    async def test_a_restart(self, blob_harness: BlobHarness) -> None:
        await blob_harness.blobs.put(KEY, b"hello")
        assert await blob_harness.reopen() is blob_harness.blobs.durable
        if blob_harness.blobs.durable:
            assert await blob_harness.blobs.get(KEY) == b"hello"
