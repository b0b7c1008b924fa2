"""The synchronous client, in a thread of its own beside a real relay."""

import asyncio
import threading
from typing import Any

import pytest

from relay_service.client import (
    BlockingSite,
    ErrorOutcome,
    GeneratePayload,
    JobContext,
    JobEndedError,
    JobEndReason,
    OkOutcome,
    RelayError,
)
from relay_service.client.outcomes import Outcome
from tests.harness.waiting import eventually
from tests.relay_service.client.real_relay import SITE_KEYS, STRANGER_KEYS, RealRelay, real_relay
from tests.relay_service.client.test_site_relay import device, no_jobs


def ask(
    relay: RealRelay | str, prompt: Any, *, keys: Any = SITE_KEYS, trust: Any = None, **options: Any
) -> Any:
    address = relay if isinstance(relay, str) else relay.address
    waits: list[float] = []
    with BlockingSite(address, site_id="shop", keys=keys, trust=trust, sleep=waits.append) as site:
        return site.ask(prompt, owner="alice", **options)


async def test_an_answer_and_nothing_left_behind() -> None:
    async with real_relay() as relay, device(relay):
        before = {thread.name for thread in threading.enumerate()}
        result = await asyncio.to_thread(ask, relay, "hello")
        again = await asyncio.to_thread(ask, relay, GeneratePayload("x" * 100_000, system="be brief"))
        after = {thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}

        assert result.text == "echo: hello"
        assert again.text == "echo: " + "x" * 100_000
        assert after <= before
        await eventually(lambda: no_jobs(relay))


async def test_an_error_of_the_device_is_an_outcome() -> None:
    async def fail(context: JobContext) -> Outcome:
        return ErrorOutcome("timeout", "too slow", retryable=True)

    async with real_relay() as relay, device(relay, fail):
        result = await asyncio.to_thread(ask, relay, "hello")

    assert result.outcome == ErrorOutcome("timeout", "too slow", retryable=True)


async def test_a_job_that_ends_without_a_result_says_why() -> None:
    async with real_relay() as relay:
        with pytest.raises(JobEndedError) as caught:
            await asyncio.to_thread(ask, relay, "hello", deadline_ms=300)

        assert caught.value.reason is JobEndReason.EXPIRED
        await eventually(lambda: no_jobs(relay))


async def test_an_unknown_site_is_told_what_to_check() -> None:
    async with real_relay() as relay:
        with pytest.raises(RelayError, match="check that the relay's projection has this id"):
            await asyncio.to_thread(ask, relay, "hello", keys=STRANGER_KEYS)


async def test_a_relay_that_is_not_there_is_tried_four_times() -> None:
    def unreachable() -> list[float]:
        waits: list[float] = []
        with (
            BlockingSite("127.0.0.1:1", site_id="shop", keys=SITE_KEYS, sleep=waits.append) as site,
            pytest.raises(RelayError, match="check the address"),
        ):
            site.cancel("j-1")
        return waits

    assert len(await asyncio.to_thread(unreachable)) == 3


async def test_it_can_cancel() -> None:
    started = asyncio.Event()

    async def forever(context: JobContext) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return OkOutcome("never")

    def cancel(relay: RealRelay) -> bool:
        with BlockingSite(relay.address, site_id="shop", keys=SITE_KEYS) as site:
            return site.cancel("j-1")

    async with real_relay() as relay, device(relay, forever):
        asking = asyncio.ensure_future(asyncio.to_thread(ask, relay, "hello", job_id="j-1"))
        await asyncio.wait_for(started.wait(), 20)
        assert await asyncio.to_thread(cancel, relay) is True

        assert (await asking).disposition == "canceled"


async def test_whoever_gives_up_withdraws_the_job() -> None:
    class ImpatientError(Exception):
        pass

    def give_up(device: Any, runner_id: str) -> bool:
        raise ImpatientError

    async with real_relay() as relay, device(relay) as daemon:
        with pytest.raises(ImpatientError):
            await asyncio.to_thread(ask, relay, "hello", trust=give_up)

        # The device hears of the cancel and reports it, or had nothing to report.
        await eventually(lambda: daemon.active == 0)
