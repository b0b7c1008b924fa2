import os
import subprocess
import sys
from pathlib import Path

import pytest

from service_common.atomic_file import create_file, locked_folder, replace_file, replacement


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    return path


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_replaced_file_keeps_its_mode_and_owner(path: Path, mode: int) -> None:
    path.chmod(mode)
    before = path.stat()

    replace_file(path, b"new")

    after = path.stat()
    assert path.read_bytes() == b"new"
    assert after.st_mode & 0o777 == mode
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino
    assert names(path.parent) == ["file"]


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = folder / "link"
    link.symlink_to(path)

    replace_file(link, b"new")

    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert names(folder) == ["link"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")

    assert path.read_bytes() == b"old"
    assert names(path.parent) == ["file"]


def test_only_a_file_that_is_there_is_replaced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "none", b"new")

    assert names(tmp_path) == []


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    create_file(tmp_path / "file", b"new")

    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["file"]


def test_a_file_that_is_there_is_not_made_again(path: Path) -> None:
    with pytest.raises(FileExistsError):
        create_file(path, b"new")

    assert path.read_bytes() == b"old"
    assert names(path.parent) == ["file"]


_TRY_LOCK = """
import fcntl, os, sys
try:
    fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("locked")
else:
    print("free")
"""


def test_one_changes_a_folder_at_a_time(path: Path) -> None:
    def seen_by_others() -> str:
        argv = [sys.executable, "-c", _TRY_LOCK, str(path.parent)]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    with locked_folder(path):
        assert seen_by_others() == "locked\n"
    assert seen_by_others() == "free\n"
    assert names(path.parent) == ["file"]


def test_a_replacement_that_is_not_put_leaves_the_file_as_it_is(path: Path) -> None:
    with replacement(path, b"new"):
        assert path.read_bytes() == b"old"

    assert path.read_bytes() == b"old"
    assert names(path.parent) == ["file"]
