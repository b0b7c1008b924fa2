"""A device that is killed in the middle of a job, and a relay that then grants it the same again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from relay_service.core.identity import encode_base64url
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.clocks import SystemClock
from tests.harness.processes import RunningProcess
from tests.harness.waiting import eventually
from tests.relay_service.client.commands import DAEMON, command, identity_file, key_file
from tests.relay_service.client.granting import CONTROL, signed
from tests.relay_service.client.real_relay import DEVICE_KEYS, SITE_KEYS
from tests.relay_service.client.scripted_device import PLANE, ServerItem, granted, lease_ref, payload
from tests.service_common.scripted_server import ScriptedServer, ScriptedStream, scripted_server

SLOW = """
[[services]]
service = "desk"
kind = "llm.generate"
backend = "command"
argv = ["/bin/sleep", "60"]
model = "m"
"""


def configure(folder: Path, server: ScriptedServer) -> Path:
    key_file(folder, DEVICE_KEYS)
    identity_file(folder, SITE_KEYS, "site.json")
    path = folder / "daemon.toml"
    key = encode_base64url(CONTROL.public_key)
    head = f'relay = "{server.address}"\nrunner_id = "desk"\nowner = "alice"\ncontrol_plane_key = "{key}"\n'
    path.write_text(head + SLOW)
    return path


@asynccontextmanager
async def started(
    config: Path, server: ScriptedServer
) -> AsyncIterator[tuple[RunningProcess, ScriptedStream]]:
    pin = str(config.with_name("site.json"))
    async with command(DAEMON, "run", "--config", str(config), "--site-pin", pin) as process:
        stream = await server.stream(len(server.streams), timeout=40)
        await stream.welcome()
        yield process, stream


async def grant(stream: ScriptedStream, lease: str, signed_grant: job_pb2.SignedGrant) -> None:
    far = SystemClock().now_ms() + 900_000
    job: Any = granted("j-1", lease=lease, deadline_at_ms=far, grant=signed_grant)
    ready = daemon_plane_pb2.PayloadReady(lease=lease_ref("j-1", lease), envelope=payload("j-1"))
    await stream.send(ServerItem(granted=job), ServerItem(payload_ready=ready))


@pytest.mark.process
async def test_a_grant_is_used_up_before_the_work_begins(tmp_path: Path) -> None:
    once = signed(issued_at_ms=SystemClock().now_ms())
    async with scripted_server(PLANE) as server:
        config = configure(tmp_path, server)
        async with started(config, server) as (process, stream):
            await grant(stream, "l-1", once)
            await process.wait_line("job j-1 of alice begins")
            ledger = tmp_path / "spool/desk/ledger.jsonl"
            await eventually(lambda: ledger.exists() and ledger.read_bytes(), 20)
            process.kill()
            await process.wait()
        async with started(config, server) as (_, stream):
            await grant(stream, "l-2", once)
            call = await stream.next_item("call")

            assert call.release_leases.reason == daemon_plane_pb2.RELEASE_REASON_REFUSED
            assert list(call.release_leases.leases) == [lease_ref("j-1", "l-2")]
            assert stream.items("grant_ack") == []
