import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from relay_service.client.prompt_log import PromptLog, PromptLogUnavailable
from service_common.clocks import ManualClock


def logged(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.jsonl"


def log_one(log: PromptLog, text: str = "Why?", job_id: str = "job-1") -> None:
    log.log_ingress(job_id, "BYOLLM-SITE", "ann", "llm.generate", text)


def test_a_line_is_there_when_the_call_returns(path: Path, manual_clock: ManualClock) -> None:
    log_one(PromptLog(path, clock=manual_clock))

    assert logged(path) == [
        {
            "at_ms": 1_700_000_000_000,
            "job_id": "job-1",
            "site": "BYOLLM-SITE",
            "owner": "ann",
            "kind": "llm.generate",
            "text": "Why?",
        }
    ]


def test_lines_are_appended_by_this_log_and_the_next(path: Path) -> None:
    first = PromptLog(path)
    log_one(first, "One?")
    log_one(first, "Two?")
    log_one(PromptLog(path), "Three?")

    assert [entry["text"] for entry in logged(path)] == ["One?", "Two?", "Three?"]


@pytest.mark.parametrize("text", ["a\nb\r\u2028c", "\x1b[2J", "ünï 🦭", '"}\n{"job_id": "forged"}', "\ud83d"])
def test_any_text_is_one_line_of_ascii(path: Path, text: str) -> None:
    log_one(PromptLog(path), text)

    assert path.read_bytes().isascii()
    assert path.read_bytes().count(b"\n") == 1
    assert logged(path)[0]["text"] == text


def test_the_owner_alone_may_read_it(path: Path) -> None:
    previous = os.umask(0)
    try:
        log_one(PromptLog(path))
    finally:
        os.umask(previous)
    assert mode(path) == 0o600


def test_a_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    path.write_text("")
    path.chmod(0o644)
    log_one(PromptLog(path))
    assert mode(path) == 0o600


def test_files_are_set_aside_by_size_and_the_oldest_goes(path: Path) -> None:
    log = PromptLog(path, max_bytes=200, keep=2)
    # A line of this text has more than 100 bytes, so each file holds one.
    for number in range(5):
        log_one(log, f"Question {number}?")

    files = sorted(file.name for file in path.parent.iterdir())
    assert files == ["prompts.jsonl", "prompts.jsonl.1", "prompts.jsonl.2"]
    texts = [logged(path.with_name(name))[0]["text"] for name in files]
    assert texts == ["Question 4?", "Question 3?", "Question 2?"]
    assert mode(path.with_name("prompts.jsonl.1")) == 0o600


def test_files_within_their_size_are_not_set_aside(path: Path) -> None:
    log = PromptLog(path, max_bytes=100_000)
    for _ in range(50):
        log_one(log)
    assert len(logged(path)) == 50
    assert list(path.parent.iterdir()) == [path]


def test_a_line_longer_than_a_file_is_still_logged(path: Path) -> None:
    log = PromptLog(path, max_bytes=10)
    log_one(log, "x" * 1000)
    assert logged(path)[0]["text"] == "x" * 1000


def test_no_old_file_need_be_kept(path: Path) -> None:
    log = PromptLog(path, max_bytes=10, keep=0)
    log_one(log, "One?")
    log_one(log, "Two?")
    assert [entry["text"] for entry in logged(path)] == ["Two?"]
    assert list(path.parent.iterdir()) == [path]


def test_a_log_that_is_off_writes_nothing(tmp_path: Path) -> None:
    log = PromptLog(None)
    log.prepare()
    log_one(log)
    assert not log.enabled
    assert list(tmp_path.iterdir()) == []


def test_preparing_makes_the_folder_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "prompts.jsonl"
    PromptLog(path).prepare()
    assert mode(path.parent) == 0o700
    assert (mode(path), path.read_bytes()) == (0o600, b"")


def test_a_log_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    missing = PromptLog(tmp_path / "missing" / "prompts.jsonl")
    with pytest.raises(PromptLogUnavailable, match=r"missing/prompts.jsonl: No such file"):
        log_one(missing)
    folder = PromptLog(tmp_path)
    with pytest.raises(PromptLogUnavailable, match=r"Is a directory"):
        folder.prepare()


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    path.symlink_to(elsewhere)

    with pytest.raises(PromptLogUnavailable):
        log_one(PromptLog(path))
    assert elsewhere.read_bytes() == b""


def test_a_pipe_is_not_a_log(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(PromptLogUnavailable):
        log_one(PromptLog(path))


def test_half_a_line_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = PromptLog(path)
    log_one(log, "One?")
    write = os.write
    monkeypatch.setattr(os, "write", filling_disk(write))
    with pytest.raises(PromptLogUnavailable, match="No space left on device"):
        log_one(log, "Two?")
    monkeypatch.setattr(os, "write", write)
    log_one(log, "Three?")

    assert [entry["text"] for entry in logged(path)] == ["One?", "Three?"]


def filling_disk(write: Any) -> Any:
    """A write that takes ten bytes once and none after that."""
    taken: list[int] = []

    def limited(descriptor: int, data: memoryview) -> int:
        if taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken.append(write(descriptor, data[:10]))
        return taken[0]

    return limited
