"""A process that is served with rules, which are edited while it serves."""

import asyncio
from pathlib import Path

import grpc.aio

from service_common.clocks import SystemClock
from tests.durable_service.durable_fixture import creation, durable_process, signer_of
from tests.durable_service.raw_client import Party


async def test_an_edit_is_in_force_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "admission.json"
    await asyncio.to_thread(path.write_bytes, b'{"default": {"drivers": ["post"]}}')
    async with (
        durable_process(tmp_path, "--admission", str(path)) as (process, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        alice = Party(channel, "alice", signer_of("alice"), SystemClock().now_ms)
        assert (await alice.refused("CreateTask", creation())).reason == "ADMISSION_REFUSED"
        await process.wait_line(r'"problem":"the driver is not allowed"')
        await asyncio.to_thread(path.write_bytes, b'{"default": {"drivers": ["mail"]}}')
        await process.wait_line(r"admission_replaced")

        assert (await alice.call("CreateTask", creation())).created
