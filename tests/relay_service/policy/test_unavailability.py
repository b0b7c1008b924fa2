"""A policy that fails again and again is left alone for a while, and found again when it is back."""

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import structlog

from relay_service.planes.policy_client import PolicyClient
from relay_service.policy import (
    Decision,
    Declined,
    Policy,
    PolicyUnavailable,
    Slot,
    SlotVerdict,
    WonJob,
)
from sealwork.relay.v1 import site_plane_pb2
from service_common.clocks import ManualClock
from service_common.metrics import Metrics
from tests.harness.waiting import eventually
from tests.relay_service.core.jobs import STUB
from tests.relay_service.policy.scripted_policy import PolicyRelay, ScriptedPolicy
from tests.relay_service.relay_fixture import RelayUnderTest

SLOT = Slot("demo", "alice", "default", "llm.generate")


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


def events(log: list[Any]) -> list[str]:
    return [entry["event"] for entry in log if entry["event"].startswith("policy_")]


async def refuse(relay: RelayUnderTest, number: int) -> Any:
    request = site_plane_pb2.EnqueueJobRequest(stub=relay.stub(f"refused-{number}"))
    return await relay.site().refused("EnqueueJob", request)


async def open_circuit(asked: PolicyRelay) -> None:
    for number in range(5):
        asked.policy.failing.append(grpc.StatusCode.INTERNAL)
        assert (await refuse(asked.relay, number)).reason == "POLICY_UNAVAILABLE"


def is_unavailable(relay: RelayUnderTest) -> float:
    return relay.server.metrics.value("relay_policy_unavailable")


async def test_five_failures_in_a_row_end_the_asking(asked: PolicyRelay, log: list[Any]) -> None:
    relay = asked.relay
    await open_circuit(asked)
    assert is_unavailable(relay) == 1
    for number in range(10):
        refusal = await refuse(relay, number)
        assert (refusal.reason, refusal.retry_after_ms) == ("POLICY_UNAVAILABLE", 5_000)
    assert len(asked.policy.slots) == 5
    assert events(log) == ["policy_unavailable"]
    questions = "relay_policy_questions_total"
    assert relay.server.metrics.value(questions, method="CheckSlot", outcome="unavailable") == 5
    assert relay.server.metrics.value(questions, method="CheckSlot", outcome="not-asked") == 10


async def test_after_five_seconds_one_question_closes_the_circuit(asked: PolicyRelay, log: list[Any]) -> None:
    relay = asked.relay
    await open_circuit(asked)
    await relay.pass_time(4_999)
    assert (await refuse(relay, 1)).retry_after_ms == 1_000
    assert len(asked.policy.slots) == 5
    await relay.pass_time(1)
    await relay.enqueue("job-1", "job-2")
    assert is_unavailable(relay) == 0
    assert events(log) == ["policy_unavailable", "policy_answers_again"]


async def test_a_probe_that_fails_is_not_logged_again(asked: PolicyRelay, log: list[Any]) -> None:
    await open_circuit(asked)
    for number in range(3):
        await asked.relay.pass_time(5_000)
        asked.policy.failing.append(grpc.StatusCode.INTERNAL)
        await refuse(asked.relay, number)
        await refuse(asked.relay, number)
    assert len(asked.policy.slots) == 8
    assert events(log) == ["policy_unavailable"]


async def test_nothing_is_claimed_that_would_only_be_declined(asked: PolicyRelay) -> None:
    relay = asked.relay
    await relay.enqueue("job-1", "job-2", "job-3")
    await open_circuit(asked)
    streams = [await relay.daemon(name).connect(limit=4) for name in ("runner-1", "runner-2")]
    for stream in streams:
        await stream.settle()
    assert asked.policy.grants == []
    for number in (1, 2, 3):
        job = await relay.store.job("demo", f"job-{number}")
        assert job is not None
        assert (job.state.value, job.retry_after_ms) == ("queued", ())


async def test_waiting_devices_are_served_when_the_policy_is_back(asked: PolicyRelay) -> None:
    relay = asked.relay
    await relay.enqueue("job-1", "job-2", "job-3")
    await open_circuit(asked)
    stream = await relay.daemon().connect(limit=2)
    await stream.settle()
    # Nobody does anything but time: the first question is the probe, the others follow its answer.
    await relay.pass_time(5_000, alive=[stream])
    granted = {(await stream.next("granted")).stub.id for _ in range(2)}
    assert granted == {"job-1", "job-2"}
    assert is_unavailable(relay) == 0


async def test_one_job_probes_while_the_policy_stays_away(asked: PolicyRelay) -> None:
    relay = asked.relay
    await relay.enqueue("job-1", "job-2", "job-3")
    await open_circuit(asked)
    streams = [await relay.daemon(name).connect(limit=4) for name in ("runner-1", "runner-2")]
    asked.policy.failing.extend([grpc.StatusCode.INTERNAL] * 3)
    for probes in (1, 2):
        await relay.pass_time(5_000, alive=streams)
        await asked.policy.asked(probes)
        for stream in streams:
            await stream.settle()
    assert len(asked.policy.grants) == 2


async def test_a_deadline_bounds_both_attempts() -> None:
    policy = ScriptedPolicy()
    await policy.start()
    client = PolicyClient(policy.address)
    asking = Policy(client, ManualClock(), Metrics(), deadline_seconds=0.2)
    policy.gate.clear()
    try:
        with pytest.raises(PolicyUnavailable) as caught:
            await client.author_grant(_won(), 0.05)
        assert not caught.value.may_retry
        policy.failing.append(grpc.StatusCode.UNAVAILABLE)
        assert await asking.author_grant(_won()) == Declined(permanent=False)
        assert len(policy.grants) == 3
    finally:
        policy.gate.set()
        asking.close()
        await client.close()
        await policy.stop()


async def test_a_policy_that_was_never_there_is_found_when_it_comes() -> None:
    policy = ScriptedPolicy()
    await policy.start()
    address = policy.address
    await policy.stop()
    client = PolicyClient(address)
    asking = Policy(client, ManualClock(), Metrics())
    try:
        with pytest.raises(PolicyUnavailable):
            await asking.check_slot(SLOT)
        await policy.start()

        async def found() -> bool:
            try:
                await client.check_slot(SLOT, 1.0)
            except PolicyUnavailable:
                return False
            return True

        await eventually(found)
    finally:
        asking.close()
        await client.close()
        await policy.stop()


async def test_a_probe_that_is_given_up_makes_way_for_another() -> None:
    clock, hanging = ManualClock(), HangingService()
    asking = Policy(hanging, clock, Metrics())
    ready: list[int] = []
    for _ in range(5):
        with pytest.raises(PolicyUnavailable):
            await asking.check_slot(SLOT)
    asking.listen(lambda: ready.append(asking.room(9)))
    assert asking.room(9) == 0
    clock.advance(5_000)
    assert ready == [1]
    hanging.hangs = True
    probe = asyncio.create_task(asking.check_slot(SLOT))
    await eventually(lambda: hanging.asked == 6)
    assert asking.room(9) == 0
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert ready == [1, 1]
    asking.close()


class HangingService:
    """Fails at once, or answers never."""

    def __init__(self) -> None:
        self.asked = 0
        self.hangs = False

    async def check_slot(self, slot: Slot, seconds: float) -> SlotVerdict:
        self.asked += 1
        if not self.hangs:
            raise PolicyUnavailable
        await asyncio.Event().wait()
        return SlotVerdict.OK

    async def author_grant(self, won: WonJob, seconds: float) -> Decision:
        raise PolicyUnavailable

    async def reconnect(self, seconds: float) -> bool:
        return False


def _won() -> WonJob:
    return WonJob("demo", STUB, "lease-1", "alice", "runner-1", ())
