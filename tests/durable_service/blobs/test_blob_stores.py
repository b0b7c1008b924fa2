"""The blob stores pass their contract; the one in files is careful with its disk."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from durable_service.blobs.contract import CONTRACT_BYTES, KEY, START_MS, BlobStoreContract, reason
from durable_service.blobs.filesystem import FileBlobStore
from durable_service.blobs.memory import MemoryBlobStore
from durable_service.core.errors import DomainError, Reason


@dataclass
class MemoryBlobHarness:
    now_ms: int = START_MS
    blobs: MemoryBlobStore = field(init=False)

    def __post_init__(self) -> None:
        self.blobs = MemoryBlobStore(lambda: self.now_ms, CONTRACT_BYTES)

    async def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    async def reopen(self) -> bool:
        return False


@dataclass
class FileBlobHarness:
    folder: Path
    now_ms: int = START_MS
    blobs: FileBlobStore = field(init=False)

    def __post_init__(self) -> None:
        self.blobs = FileBlobStore(self.folder, lambda: self.now_ms, CONTRACT_BYTES)

    async def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    async def reopen(self) -> bool:
        self.__post_init__()
        return True


class TestMemoryBlobStore(BlobStoreContract):
    @pytest.fixture
    def blob_harness(self) -> MemoryBlobHarness:
        return MemoryBlobHarness()


class TestFileBlobStore(BlobStoreContract):
    @pytest.fixture
    def blob_harness(self, tmp_path: Path) -> FileBlobHarness:
        return FileBlobHarness(tmp_path / "deep" / "blobs")


@pytest.fixture
def harness(tmp_path: Path) -> FileBlobHarness:
    return FileBlobHarness(tmp_path / "blobs")


def file_of(harness: FileBlobHarness) -> Path:
    return harness.folder / KEY[:2] / KEY


def names_beside(path: Path) -> list[str]:
    return [entry.name for entry in path.parent.iterdir()]


def overwrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def permissions(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_a_file_is_for_its_owner_alone(harness: FileBlobHarness) -> None:
    await harness.blobs.put(KEY, b"hello")
    assert permissions(file_of(harness)) == 0o600
    assert names_beside(file_of(harness)) == [KEY]


@pytest.mark.parametrize("damage", [b"", b"SWB1", b"hello"])
async def test_damage_is_noticed(harness: FileBlobHarness, damage: bytes) -> None:
    await harness.blobs.put(KEY, b"hello")
    overwrite(file_of(harness), damage)
    assert await reason(harness.blobs.get(KEY)) is Reason.BLOB_CORRUPT
    assert await reason(harness.blobs.put(KEY, b"hello")) is Reason.BLOB_CORRUPT


async def test_bytes_and_names_reach_the_disk_before_the_answer(
    harness: FileBlobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        synchronised.append("bytes" if name.startswith(".unfinished-") else name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    await harness.blobs.put(KEY, b"hello")
    # The new folder in its parent, the bytes, then the name of the file in its folder.
    assert synchronised == ["blobs", "bytes", KEY[:2]]
    await harness.blobs.put(KEY, b"hello")
    assert synchronised[3:] == ["bytes", KEY[:2]]


async def test_a_disk_that_fails_leaves_nothing(
    harness: FileBlobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.blobs.put(KEY, b"hello")
    await harness.blobs.delete(KEY)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert await reason(harness.blobs.put(KEY, b"hello")) is Reason.STORE_UNAVAILABLE
    assert await harness.blobs.get(KEY) is None
    assert names_beside(file_of(harness)) == []


async def test_what_a_killed_process_left_is_cleared(harness: FileBlobHarness) -> None:
    await harness.blobs.put(KEY, b"hello")
    left = file_of(harness).with_name(".unfinished-0123")
    overwrite(left, b"half")
    os.utime(left, ns=(START_MS * 1_000_000, START_MS * 1_000_000))
    assert [key async for key in harness.blobs.keys_before(START_MS)] == []
    assert left.name in names_beside(left)
    assert [key async for key in harness.blobs.keys_before(START_MS + 1)] == [KEY]
    assert names_beside(left) == [KEY]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DomainError) as refusal:
        FileBlobStore(tmp_path / "file" / "blobs", lambda: 0)
    assert refusal.value.reason is Reason.STORE_UNAVAILABLE
