"""A relay that dies while the policy is asked: the job goes to another device and its site learns nothing."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from sealwork.relay.v1 import site_plane_pb2
from service_common.clocks import SystemClock
from tests.relay_service.planes.scene import stub
from tests.relay_service.policy.scripted_policy import ScriptedPolicy
from tests.relay_service.raw_client import RawDaemon, RawSite
from tests.relay_service.relay_fixture import DAY_MS, keys_of, timestamp
from tests.relay_service.replicas.relay_processes import relay_on, write_projection
from tests.relay_service.store.valkey_fixture import TcpServer, require_valkey

pytestmark = pytest.mark.process

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path_factory.mktemp("valkey-policy"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def policy() -> AsyncIterator[ScriptedPolicy]:
    policy = ScriptedPolicy()
    await policy.start()
    yield policy
    policy.gate.set()
    await policy.stop()


def device(channel: Any, name: str) -> RawDaemon:
    return RawDaemon(channel, name, keys_of(name), CLOCK.now_ms)


async def test_the_job_of_a_killed_relay_is_granted_by_another(
    valkey: TcpServer, policy: ScriptedPolicy, tmp_path: Path
) -> None:
    projection = write_projection(tmp_path)
    flags = ("--policy", policy.address)
    async with (
        relay_on(valkey.url, projection, "127.0.0.1:0", *flags) as first,
        relay_on(valkey.url, projection, "127.0.0.1:0", *flags) as second,
    ):
        assert first.ready is not None
        assert second.ready is not None
        async with (
            grpc.aio.insecure_channel(first.ready[1]) as to_first,
            grpc.aio.insecure_channel(second.ready[1]) as to_second,
        ):
            site = RawSite(to_second, "demo", keys_of("demo"), CLOCK.now_ms)
            notices = await site.connect()
            policy.gate.clear()
            await device(to_first, "runner-1").connect()
            deadline = timestamp(CLOCK.now_ms() + DAY_MS)
            await site.call(
                "EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=stub(id="job-1", deadline_time=deadline))
            )
            await policy.asked()
            first.kill()
            await first.wait()
            policy.gate.set()
            other = await device(to_second, "runner-2").connect()
            granted = await other.next("granted", timeout=30)
            assert granted.stub.id == "job-1"
            assert granted.grant.grant_id == f"grant-{granted.lease.id}"
            # The first that its site hears is about the second device.
            notice = await notices.next("notice", timeout=30)
            assert notice.please_seal.runner_id == "runner-2"
            assert [question.runner_id for question in policy.grants] == ["runner-1", "runner-2"]
