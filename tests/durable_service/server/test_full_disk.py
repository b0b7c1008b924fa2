"""A disk that is really full: a small file system of its own under a service that is a process of its own."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from service_common.clocks import SystemClock
from tests.durable_service.durable_fixture import creation, durable_process, signer_of
from tests.durable_service.raw_client import Party, Refusal

DISK_BYTES = 8_388_608
BALLAST_BYTES = 2_097_152
INPUT = b'{"filling":"' + b"x" * 60_000 + b'"}'
# Far more than the disk has room for.
MOST = 300

pytestmark = pytest.mark.process


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    argv = [mount or "mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(disk)]
    if mount is None or subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a small file system")
    try:
        yield disk
    finally:
        subprocess.run([shutil.which("umount") or "umount", "--lazy", str(disk)], check=True)


async def fill(party: Party, numbers: Iterator[int]) -> tuple[list[str], Refusal]:
    """Creates tasks until one is refused: those that were confirmed, and the refusal."""
    confirmed: list[str] = []
    for number in numbers:
        task_id = f"task-{number}"
        try:
            await party.call("CreateTask", creation(task_id, definition={"input": INPUT}))
        except grpc.aio.AioRpcError as error:
            return confirmed, Refusal.of_error(error)
        confirmed.append(task_id)
    raise AssertionError("the disk was never full")


async def there(party: Party, task_ids: list[str]) -> list[str]:
    return [each for each in task_ids if (await party.call("GetTask", task_id=each)).task.task_id == each]


@pytest.mark.guarantee("sqlite", "A full disk refuses writes, loses nothing, and takes them once it has room")
async def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    ballasts = [small_disk / name for name in ("first", "second")]
    for ballast in ballasts:
        await asyncio.to_thread(ballast.write_bytes, bytes(BALLAST_BYTES))
    store = f"sqlite:///{small_disk / 'tasks.db'}"
    numbers = iter(range(MOST))
    async with durable_process(tmp_path, store=store) as (process, address):
        async with grpc.aio.insecure_channel(address) as channel:
            alice = Party(channel, "alice", signer_of("alice"), SystemClock().now_ms)
            confirmed, refusal = await fill(alice, numbers)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
            assert refusal.retry_after_ms == 1_000
            assert "disk" not in refusal.message
            assert len(confirmed) > 10

            await asyncio.to_thread(ballasts[0].unlink)
            more, _ = await fill(alice, numbers)
            assert len(more) > 10
        process.kill()
        await process.wait()

    await asyncio.to_thread(ballasts[1].unlink)
    async with (
        durable_process(tmp_path, store=store) as (_, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        alice = Party(channel, "alice", signer_of("alice"), SystemClock().now_ms)
        assert await there(alice, confirmed + more) == confirmed + more
