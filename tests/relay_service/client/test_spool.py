"""Results on disk."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from relay_service.client.spool import Spool, SpoolError
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2


def result(lease: str) -> daemon_plane_pb2.CompleteJobRequest:
    return daemon_plane_pb2.CompleteJobRequest(
        lease=job_pb2.LeaseRef(job_id="j", lease_id=lease),
        envelope=job_pb2.SealedEnvelope(ciphertext=b"sealed"),
        disposition=job_pb2.DISPOSITION_OK,
    )


def results(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.result"))


async def test_what_was_put_is_there_after_a_crash(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a" / "spool")
    assert spool.open() == []
    await spool.put(result("l-1"))
    await spool.put(result("../../etc/\n"))
    spool.close()

    again = Spool(tmp_path / "a" / "spool")
    found = again.open()
    again.close()
    assert sorted(each.lease.lease_id for each in found) == ["../../etc/\n", "l-1"]
    assert result("l-1") in found


async def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = Spool(folder)
    spool.open()
    await spool.put(result("l-1"))
    spool.close()

    (file,) = results(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_what_was_removed_is_gone(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.open()
    await spool.put(result("l-1"))
    spool.remove("l-1")
    spool.remove("l-1")
    spool.close()

    assert results(tmp_path) == []


async def test_a_result_that_is_put_twice_is_there_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.open()
    await asyncio.gather(spool.put(result("l-1")), spool.put(result("l-1")))
    spool.close()

    assert len(results(tmp_path)) == 1


async def test_it_is_flushed_before_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    spool = Spool(tmp_path)
    spool.open()
    await spool.put(result("l-1"))
    spool.close()

    # The file under its unfinished name, then the folder that has its final name.
    assert flushed == [".unfinished", ""]


def test_half_written_and_broken_files_are_no_results(tmp_path: Path) -> None:
    (tmp_path / "a.unfinished").write_bytes(b"half")
    (tmp_path / "b.result").write_bytes(b"\xff\xff")
    (tmp_path / "c.result").write_bytes(b"")
    (tmp_path / "note.txt").write_text("mine")
    spool = Spool(tmp_path)
    assert spool.open() == []
    spool.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "b.unreadable",
        "c.unreadable",
        "lock",
        "note.txt",
    ]


def test_a_spool_belongs_to_one_daemon(tmp_path: Path) -> None:
    first, second = Spool(tmp_path), Spool(tmp_path)
    first.open()
    with pytest.raises(SpoolError, match="another daemon uses this spool"):
        second.open()
    second.close()
    first.close()
    third = Spool(tmp_path)
    third.open()
    third.close()


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="Not a directory"):
        Spool(tmp_path / "file" / "spool").open()


async def test_a_result_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = Spool(folder)
    spool.open()
    (folder / "lock").unlink()
    folder.rmdir()
    with pytest.raises(SpoolError, match="No such file"):
        await spool.put(result("l-1"))
    spool.close()
