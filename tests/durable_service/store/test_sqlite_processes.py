"""The SQLite store and real processes: one at a time, and killed without a warning."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from durable_service.core.claims import Claimed, ClaimRequest, claim
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.contract.scene import key
from durable_service.store.sqlite import SqliteTaskStore

ROOT = Path(__file__).parents[3]
CHILD = Path(__file__).with_name("sqlite_child.py")

pytestmark = pytest.mark.process


async def start(command: str, database: Path) -> Process:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), command, str(database), stdin=PIPE, stdout=PIPE, env=environment
    )


async def line(child: Process) -> str:
    assert child.stdout is not None
    return (await asyncio.wait_for(child.stdout.readline(), 30)).decode().strip()


async def kill(child: Process) -> None:
    child.send_signal(signal.SIGKILL)
    await child.wait()


@pytest.mark.guarantee("sqlite", "A second service on the same store is refused, and disturbs nobody")
async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    database = tmp_path / "tasks.db"
    child = await start("hold", database)
    try:
        assert await line(child) == "open"
        with pytest.raises(StoreUnavailable, match="in use by another process") as refusal:
            SqliteTaskStore(database)
        assert refusal.value.fault is StoreFault.IN_USE
        second = await start("hold", database)
        assert await line(second) == (
            f"refused in_use {database} is in use by another process: stop it, or choose another file"
        )
        assert await second.wait() == 3
    finally:
        await kill(child)
    # A killed process does not keep the file.
    await SqliteTaskStore(database).close()


async def test_a_second_store_in_one_process_is_refused(tmp_path: Path) -> None:
    store = SqliteTaskStore(tmp_path / "tasks.db")
    with pytest.raises(StoreUnavailable, match="in use"):
        SqliteTaskStore(tmp_path / "tasks.db")
    await store.close()
    await SqliteTaskStore(tmp_path / "tasks.db").close()


@pytest.mark.guarantee("sqlite", "What was answered outlives a kill of what keeps it")
@pytest.mark.parametrize("answers", [1, 60, 400])
async def test_what_was_answered_outlives_a_kill(tmp_path: Path, answers: int) -> None:
    database = tmp_path / "tasks.db"
    child = await start("work", database)
    said = [await line(child) for _ in range(answers)]
    child.send_signal(signal.SIGKILL)
    assert child.stdout is not None
    # What it had said and we had not read yet; the last line may be cut.
    rest = (await asyncio.wait_for(child.stdout.read(), 30)).decode()
    await child.wait()
    said += [text for text in rest.split("\n")[:-1] if text]
    store = SqliteTaskStore(database)
    try:
        for text in said:
            await check(store, text.split())
    finally:
        await store.close()


async def check(store: SqliteTaskStore, words: list[str]) -> None:
    what, name = words[0], words[1]
    record = await store.get(key(name))
    assert record is not None
    if what == "created":
        return
    assert record.fence == 1
    assert [attempt.id for attempt in record.attempts] == [f"claim-{name}"]
    # The grant of the dead process is still there, and its repeat still gets the same answer.
    request = ClaimRequest("worker", f"claim-{name}", 3_600_000)
    decision = await store.update(key(name), lambda task, now: claim(task, request, now))
    assert isinstance(decision.answer, Claimed)
    assert decision.written is False
    if what == "appended":
        page = await store.events(key(name), 0, 100)
        assert f"event-{words[2]}" in [event.event_id for event in page.events]
        assert [event.sequence for event in page.events] == list(range(1, page.latest + 1))
