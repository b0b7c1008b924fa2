"""Messages between relays that are lost without a trace, and what one job wakes."""

from collections.abc import Sequence
from typing import Any

import pytest

from relay_service.core.model import GrantedJob
from relay_service.dispatch import Dispatch
from relay_service.store.base import ClaimRequest
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawStream
from tests.relay_service.relay_fixture import ref
from tests.relay_service.replicas.two_relays import TwoRelays

ROUND_MS = 120_000


def deafen(relay: TwoRelays, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither relay hears of what the other does, and the connections stay as they are."""
    for store in relay.stores:
        monkeypatch.setattr(store._listeners, "tell_of_others", lambda _: None)
    for server in relay.servers:
        server.relay.go_round(ROUND_MS / 1000, lambda: None)


async def comes(relay: TwoRelays, stream: RawStream, arm: str, *others: RawStream) -> Any:
    """The item, within two rounds of time."""
    for _ in range(2 * ROUND_MS // 5_000):
        if any(item.WhichOneof("item") == arm for item in stream.items):
            break
        await relay.pass_time(5_000, alive=[stream, *others])
        await stream.settle()
    return await stream.next(arm)


async def test_work_that_nobody_told_of_is_found(relay: TwoRelays, monkeypatch: pytest.MonkeyPatch) -> None:
    device = await relay.daemon().connect(limit=1)
    await device.settle()
    deafen(relay, monkeypatch)
    await relay.enqueue("job-1")
    await device.settle()
    assert not device.take("granted")
    assert (await comes(relay, device, "granted")).stub.id == "job-1"


async def test_a_cancel_that_nobody_told_of_is_found(
    relay: TwoRelays, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    lease = ref(await device.next("granted"))
    await device.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await relay.seal(lease)
    await device.next("payload_ready")
    await device.settle()
    device.take("verdicts")
    # Held for longer than the round, without the renewals that would tell of the cancel as well.
    deafen(relay, monkeypatch)
    await relay.cancel("job-1")
    await device.settle()
    assert not device.take("verdicts")

    async def told() -> list[int]:
        await relay.pass_time(1_000, alive=[device])
        return [each.state for item in device.take("verdicts") for each in item.verdicts]

    assert await eventually(told) == [job_pb2.LEASE_STATE_CANCEL_REQUESTED]


async def test_one_job_comes_to_one_device(relay: TwoRelays) -> None:
    here = [
        await relay.daemon(name, channel=relay.channel).connect(limit=1) for name in ("runner-2", "runner-b")
    ]
    streams = [*here, await relay.daemon("runner-1").connect(limit=1)]
    for stream in streams:
        await stream.settle()
    claims: list[str] = []
    for server in relay.servers:
        count_claims(server.relay.dispatch, claims)
    await relay.enqueue("job-1")

    def granted() -> int:
        return sum(item.WhichOneof("item") == "granted" for stream in streams for item in stream.items)

    await eventually(lambda: granted() == 1)
    for store in relay.stores:
        await store.delivered()
    for stream in streams:
        await stream.settle()
    assert granted() == 1
    # The relay that came too late has asked for each of its own at the most, and woken none of them.
    assert 1 <= len(claims) <= 3
    assert len(claims) == len(set(claims))


def count_claims(dispatch: Dispatch, claims: list[str]) -> None:
    claim = dispatch._store.claim

    async def counted(request: ClaimRequest) -> Sequence[GrantedJob]:
        claims.append(request.runner_id)
        return await claim(request)

    dispatch._store.claim = counted  # type: ignore[method-assign]
