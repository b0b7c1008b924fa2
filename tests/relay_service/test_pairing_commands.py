"""Pairing as people do it: the operator's commands and the device's, each a process of its own."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.harness.processes import RunningProcess, running
from tests.relay_service.client.commands import DAEMON, command, ended, identity_file, key_file
from tests.relay_service.relay_fixture import REPOSITORY, keys_of, relay_process
from tests.relay_service.replicas.relay_processes import relay_on, write_projection
from tests.relay_service.store.valkey_fixture import TcpServer, free_port, require_valkey

pytestmark = pytest.mark.process

SEARCH = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'protos/gen/python'}"}
CODE = r"^  code +(\S{4}-\S{4})$"


def operator_flags(folder: Path) -> tuple[str, str]:
    key_file(folder, replace(keys_of("operator"), created_at_ms=1), "operator-keys.json")
    return "--operator-identity", identity_file(folder, keys_of("operator"), "operator.json")


async def operate(folder: Path, address: str, *words: str) -> tuple[int, str]:
    """A command of relay-service; its status, and all that it says."""
    argv = [sys.executable, "-m", "relay_service", *words, "--relay", address]
    key = {"RELAY_OPERATOR_KEY": str(folder / "operator-keys.json")}
    async with running(argv, env=SEARCH | key, cwd=folder) as process:
        done = await ended(process)
        return done.status, "\n".join([*done.stdout, *done.stderr])


def pairing(folder: Path, address: str) -> Any:
    return command(DAEMON, "pair", "--relay", address, "--keys", str(folder / "device" / "keys.json"))


async def code_of(process: RunningProcess) -> str:
    return (await process.wait_line(CODE, 40))[1]


@asynccontextmanager
async def shared_server(folder: Path) -> AsyncIterator[str]:
    require_valkey()
    server = TcpServer(folder)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


async def test_a_device_is_approved_by_a_command(tmp_path: Path) -> None:
    async with (
        relay_process(tmp_path, *operator_flags(tmp_path)) as (_, address),
        pairing(tmp_path, address) as device,
    ):
        code = await code_of(device)
        status, said = await operate(tmp_path, address, "approve", code, "--owner", "alice")
        assert status == 0, said
        done = await ended(device)
    assert done.status == 0, done.stderr
    assert any(line.endswith(", owned by alice.") for line in done.stdout)
    assert keys_of("demo").key_id in "\n".join(done.stdout)


async def test_a_device_is_denied_by_a_command(tmp_path: Path) -> None:
    async with (
        relay_process(tmp_path, *operator_flags(tmp_path)) as (_, address),
        pairing(tmp_path, address) as device,
    ):
        status, said = await operate(tmp_path, address, "deny", await code_of(device))
        assert status == 0, said
        done = await ended(device)
    assert done.status == 3


async def test_a_relay_that_is_killed_while_a_device_waits(tmp_path: Path) -> None:
    """On the memory store the code dies with the relay; the device shows another one."""
    flags = operator_flags(tmp_path)
    projection, address = write_projection(tmp_path), f"127.0.0.1:{free_port()}"
    async with relay_on("memory:", projection, address, *flags) as relay:
        device_process = pairing(tmp_path, address)
        device = await device_process.__aenter__()
        first = await code_of(device)
        await device.wait_line("waiting for approval", 20)
        relay.kill()
        await relay.wait()
    try:
        async with relay_on("memory:", projection, address, *flags):
            second = (await device.wait_line(rf"^  code +(?!{first})(\S{{4}}-\S{{4}})$", 60))[1]
            status, said = await operate(tmp_path, address, "approve", second, "--owner", "alice")
            assert status == 0, said
            done = await ended(device)
    finally:
        await device_process.__aexit__(None, None, None)
    assert done.status == 0, done.stderr
    assert any("still waiting" in line for line in done.stdout)


async def test_a_device_at_one_relay_and_the_operator_at_another(tmp_path: Path) -> None:
    flags = operator_flags(tmp_path)
    (tmp_path / "valkey").mkdir()
    (tmp_path / "other").mkdir()
    here, there = write_projection(tmp_path), write_projection(tmp_path / "other")
    ports = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    async with (
        shared_server(tmp_path / "valkey") as store,
        relay_on(store, here, ports[0], *flags),
        relay_on(store, there, ports[1], *flags),
        pairing(tmp_path, ports[0]) as device,
    ):
        code = await code_of(device)
        status, said = await operate(tmp_path, ports[1], "approve", code.lower(), "--owner", "alice")
        assert status == 0, said
        done = await ended(device)
    assert done.status == 0, done.stderr
    assert any(line.endswith(", owned by alice.") for line in done.stdout)
