"""Sites and devices against a real relay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from relay_service.client import (
    ChatMessage,
    ChatPayload,
    Daemon,
    ErrorOutcome,
    GeneratePayload,
    JobContext,
    JobEndedError,
    JobEndReason,
    JobFailedError,
    OkOutcome,
    RelayError,
    Site,
)
from relay_service.client.outcomes import Outcome
from sealwork.relay.v1 import site_plane_pb2
from tests.harness.fault_proxy import fault_proxy
from tests.harness.waiting import eventually
from tests.relay_service.client.real_relay import (
    DEVICE_KEYS,
    GENERATE,
    OTHER_DEVICE_KEYS,
    SITE_KEYS,
    STRANGER_KEYS,
    RealRelay,
    projection,
    real_relay,
)

DEVICE_KEY_ID = "BYOLLM-PRQ8-CZX2-YCXF-WRPN-TTRP-8BGP"


async def echo(context: JobContext) -> Outcome:
    assert isinstance(context.payload, GeneratePayload)
    return OkOutcome(f"echo: {context.payload.prompt}")


@asynccontextmanager
async def device(
    relay: RealRelay | str, handler: Any = echo, *, runner_id: str = "desk", **options: Any
) -> AsyncIterator[Daemon]:
    daemon = Daemon(
        relay if isinstance(relay, str) else relay.address,
        runner_id=runner_id,
        keys=DEVICE_KEYS if runner_id == "desk" else OTHER_DEVICE_KEYS,
        pins=[SITE_KEYS.public],
        matrix=[GENERATE],
        handlers={"llm.generate": handler},
        owner="alice",
        **options,
    )
    running = asyncio.ensure_future(daemon.run())
    try:
        await asyncio.wait_for(daemon.opened(), 10)
        yield daemon
    finally:
        await daemon.stop(grace_seconds=5)
        await running


def shop(relay: RealRelay | str, **options: Any) -> Site:
    address = relay if isinstance(relay, str) else relay.address
    return Site(address, site_id="shop", keys=SITE_KEYS, **options)


async def test_a_job_is_answered_and_the_answer_is_the_devices_own() -> None:
    async with real_relay() as relay, device(relay), shop(relay) as site:
        job = await site.enqueue(GeneratePayload("hello"), owner="alice")
        result = await job.result(10)

    assert result.text == "echo: hello"
    assert result.disposition == "ok"
    assert (result.runner_id, result.runner_owner) == ("desk", "alice")
    assert result.device_key_id == DEVICE_KEY_ID
    assert (result.ran.model, result.ran.backend_class, result.ran.stop) == ("small", "http", "unknown")


@pytest.mark.parametrize("streams", [True, False])
async def test_large_bodies_travel_too(streams: bool) -> None:
    prompt = "p" * 300_000
    async with real_relay() as relay, device(relay), shop(relay, streams=streams) as site:
        job = await site.enqueue(GeneratePayload(prompt), owner="alice")

        assert (await job.result(20)).text == "echo: " + prompt


async def test_a_site_without_streams_is_complete() -> None:
    async with real_relay() as relay, device(relay), shop(relay, streams=False) as site:
        jobs = [await site.enqueue(GeneratePayload(str(n)), owner="alice") for n in range(5)]

        assert [(await job.result(10)).text for job in jobs] == [f"echo: {n}" for n in range(5)]
        await eventually(lambda: no_jobs(relay))


async def test_many_jobs_at_once() -> None:
    async with real_relay() as relay, device(relay, slots=8), shop(relay) as site:
        jobs = await asyncio.gather(
            *(site.enqueue(GeneratePayload(str(n)), owner="alice") for n in range(300))
        )
        results = await asyncio.gather(*(job.result(30) for job in jobs))

        assert [result.text for result in results] == [f"echo: {n}" for n in range(300)]
        await eventually(lambda: no_jobs(relay))


async def test_a_kind_of_ones_own_carries_text() -> None:
    async def reverse(context: JobContext) -> Outcome:
        assert isinstance(context.payload, str)
        return OkOutcome(context.payload[::-1])

    async with real_relay() as relay:
        daemon = Daemon(
            relay.address,
            runner_id="desk",
            keys=DEVICE_KEYS,
            pins={SITE_KEYS.key_id: SITE_KEYS.public},
            matrix=[_kind("text.reverse")],
            handlers={"text.reverse": reverse},
            owner="alice",
        )
        running = asyncio.ensure_future(daemon.run())
        async with shop(relay) as site:
            job = await site.enqueue("abc", owner="alice", kind="text.reverse")
            assert (await job.result(10)).text == "cba"
        await daemon.stop()
        await running


def _kind(kind: str) -> Any:
    return type(GENERATE)(kind, "desk", "llamacpp", "process", "m", GENERATE.offer_scope)


async def test_a_payload_of_no_kind_and_of_another_kind_is_refused_here() -> None:
    async with real_relay() as relay, shop(relay) as site:
        with pytest.raises(ValueError, match="needs a kind"):
            await site.enqueue("text", owner="alice")
        with pytest.raises(ValueError, match=r"llm\.chat"):
            await site.enqueue(ChatPayload([ChatMessage("user", "a")]), owner="alice", kind="llm.generate")


async def test_an_error_of_the_device_is_an_outcome() -> None:
    async def fail(context: JobContext) -> Outcome:
        return ErrorOutcome("timeout", "it took too long", retryable=True)

    async with real_relay() as relay, device(relay, fail), shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice")
        result = await job.result(10)

    assert result.disposition == "error"
    assert result.outcome == ErrorOutcome("timeout", "it took too long", retryable=True)
    with pytest.raises(JobFailedError, match="it took too long"):
        _ = result.text


async def test_a_fault_of_the_handler_tells_the_site_nothing_of_it() -> None:
    async def fault(context: JobContext) -> Outcome:
        raise RuntimeError("secret path /home/alice")

    async with real_relay() as relay, device(relay, fault), shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice")
        outcome = (await job.result(10)).outcome

    assert outcome == ErrorOutcome("service_unavailable", "the device could not do the work", retryable=True)


# -- cancelling -------------------------------------------------------------------------


async def test_a_cancel_reaches_the_running_handler() -> None:
    started, seen = asyncio.Event(), []

    async def slow(context: JobContext) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(context.cancelled.is_set())
            raise
        return OkOutcome("never")

    async with real_relay() as relay, device(relay, slow) as daemon, shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice")
        await asyncio.wait_for(started.wait(), 10)
        assert await job.cancel() is True
        result = await job.result(10)

        assert result.disposition == "canceled"
        assert seen == [True]
        await eventually(lambda: daemon.active == 0)
    with pytest.raises(JobFailedError, match="canceled"):
        _ = result.text


async def test_a_handler_that_answers_all_the_same_is_canceled_all_the_same() -> None:
    started = asyncio.Event()

    async def stubborn(context: JobContext) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return OkOutcome("too late")
        return OkOutcome("never")

    async with real_relay() as relay, device(relay, stubborn), shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice")
        await asyncio.wait_for(started.wait(), 10)
        await job.cancel()

        assert (await job.result(10)).disposition == "canceled"


async def test_a_job_that_nobody_holds_is_over_when_it_is_cancelled() -> None:
    async with real_relay() as relay, shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice")
        assert await job.cancel() is True
        with pytest.raises(JobEndedError) as caught:
            await job.result(10)

        assert caught.value.reason is JobEndReason.CANCELLED
        assert await site.cancel("no-such-job") is False


async def test_a_job_whose_deadline_passes_is_over() -> None:
    async with real_relay() as relay, shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice", deadline_ms=300)
        with pytest.raises(JobEndedError) as caught:
            await job.result(10)

        assert caught.value.reason is JobEndReason.EXPIRED


# -- settling ---------------------------------------------------------------------------


async def test_a_job_is_settled_once_its_result_was_handed_over_and_not_before() -> None:
    async with real_relay() as relay, device(relay), shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice", job_id="j-1")
        await eventually(lambda: job.done)
        assert await relay.server.relay.store.job("shop", "j-1") is not None

        await job.result(10)
        await eventually(lambda: no_jobs(relay))


async def test_a_site_may_settle_by_itself() -> None:
    async with real_relay() as relay, device(relay), shop(relay, acknowledge=False) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice", job_id="j-1")
        await job.result(10)
        await site.cancel("another")  # a call and its answer: whatever was to be sent has been
        assert await relay.server.relay.store.job("shop", "j-1") is not None

        job.acknowledge()
        await eventually(lambda: no_jobs(relay))


async def test_another_process_takes_up_a_job_by_its_id() -> None:
    gate = asyncio.Event()

    async def gated(context: JobContext) -> Outcome:
        await gate.wait()
        return await echo(context)

    async with real_relay() as relay, device(relay, gated):
        async with shop(relay) as site:
            job = await site.enqueue(GeneratePayload("a"), owner="alice", job_id="j-1")
            await job.sealed(10)
        gate.set()
        orphans: list[site_plane_pb2.SiteNotice] = []
        async with shop(relay, on_orphan=orphans.append) as site:
            await eventually(lambda: [o.job_id for o in orphans if o.HasField("result_ready")] == ["j-1"])
            assert (await site.read_result("j-1")).text == "echo: a"
            again = await site.enqueue(GeneratePayload("a"), owner="alice", job_id="j-1")

            assert (await again.result(10)).text == "echo: a"
            await eventually(lambda: no_jobs(relay))


async def test_orphans_stay_until_they_are_settled() -> None:
    async with real_relay() as relay, device(relay), shop(relay, acknowledge=False) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice", job_id="j-1")
        await job.result(10)
        async with shop(relay) as other:
            assert await other.settle(job_ids=["j-1"]) == ["j-1"]
        await eventually(lambda: no_jobs(relay))


# -- what goes wrong --------------------------------------------------------------------


async def test_a_relay_that_is_not_there_is_an_error_that_says_so() -> None:
    with pytest.raises(RelayError) as caught:
        async with shop("127.0.0.1:1", connect_timeout=0.3):
            pass

    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert "check the address, and that the relay is running" in str(caught.value)


@pytest.mark.parametrize(("site_id", "keys"), [("shop", STRANGER_KEYS), ("stranger", SITE_KEYS)])
async def test_a_site_that_the_relay_does_not_know_is_told_what_to_check(site_id: str, keys: Any) -> None:
    async with real_relay() as relay:
        with pytest.raises(RelayError) as caught:
            async with Site(relay.address, site_id=site_id, keys=keys):
                pass

    assert caught.value.reason == "BAD_SIGNATURE"
    assert "check that the relay's projection has this id" in str(caught.value)


async def test_a_bad_stub_is_refused_with_its_field() -> None:
    async with real_relay() as relay, shop(relay) as site:
        with pytest.raises(RelayError) as caught:
            await site.enqueue(GeneratePayload("a"), owner="alice", job_id="x" * 129)

        assert caught.value.reason == "FIELD_INVALID"
        assert [violation.field for violation in caught.value.violations] == ["stub.id"]


async def test_a_site_that_is_cut_off_fails_what_waits() -> None:
    async with real_relay() as relay, shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice")
        relay.source.replace(type(relay.source.current)())

        with pytest.raises(RelayError) as caught:
            await job.result(20)
        assert caught.value.reason == "BAD_SIGNATURE"
        with pytest.raises(RelayError):
            await site.enqueue(GeneratePayload("b"), owner="alice")


async def test_jobs_survive_a_relay_that_forgets_them() -> None:
    async with real_relay() as relay, shop(relay) as site:
        job = await site.enqueue(GeneratePayload("a"), owner="alice")
        await relay.restart()
        async with device(relay):
            assert (await job.result(30)).text == "echo: a"


async def test_a_job_survives_a_network_that_fails_while_it_runs() -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    async def gated(context: JobContext) -> Outcome:
        started.set()
        await gate.wait()
        return await echo(context)

    async with real_relay() as relay:
        host, _, port = relay.address.partition(":")
        async with (
            fault_proxy(host, int(port)) as proxy,
            device(f"127.0.0.1:{proxy.port}", gated) as daemon,
            shop(f"127.0.0.1:{proxy.port}") as site,
        ):
            job = await site.enqueue(GeneratePayload("a"), owner="alice")
            await asyncio.wait_for(started.wait(), 10)
            await proxy.reset_all()
            gate.set()

            assert (await job.result(30)).text == "echo: a"
            await eventually(lambda: daemon.undelivered == 0)


async def test_a_device_that_leaves_gives_its_job_to_another() -> None:
    started = asyncio.Event()

    async def never(context: JobContext) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return OkOutcome("never")

    async with real_relay() as relay, shop(relay) as site:
        async with device(relay, never) as first:
            job = await site.enqueue(GeneratePayload("a"), owner="alice")
            await asyncio.wait_for(started.wait(), 10)
            await first.stop(grace_seconds=0)
        async with device(relay, runner_id="lap"):
            result = await job.result(20)

        assert (result.text, result.runner_id) == ("echo: a", "lap")
        assert job.requeues == 1


async def test_a_revoked_device_stops_for_good() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def never(context: JobContext) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return OkOutcome("never")

    async with real_relay() as relay, shop(relay) as site:
        daemon = Daemon(
            relay.address,
            runner_id="desk",
            keys=DEVICE_KEYS,
            pins=[SITE_KEYS.public],
            matrix=[GENERATE],
            handlers={"llm.generate": never},
            owner="alice",
        )
        running = asyncio.ensure_future(daemon.run())
        await site.enqueue(GeneratePayload("a"), owner="alice")
        await asyncio.wait_for(started.wait(), 10)
        relay.source.replace(projection(revoked=True))

        with pytest.raises(RelayError) as caught:
            await asyncio.wait_for(running, 20)
        assert caught.value.reason == "DEVICE_REVOKED"
        assert stopped.is_set()


async def no_jobs(relay: RealRelay) -> bool:
    return not await relay.server.relay.store.jobs()
