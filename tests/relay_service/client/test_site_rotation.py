"""A site moves to new keys while everything runs: the devices follow, and nothing that was asked is lost."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from relay_service.client import GeneratePayload, JobContext, OkOutcome, RelayError, Site
from relay_service.client.keys import Keys
from relay_service.client.outcomes import Outcome
from relay_service.client.prompt_log import PromptLog
from relay_service.client.succession import sign_link
from relay_service.core.projection import ProjectedSite, Projection, SuccessionLink
from service_common.clocks import SystemClock
from tests.harness.waiting import eventually
from tests.relay_service.client.commands import key_file, site
from tests.relay_service.client.real_relay import SITE_KEYS, STRANGER_KEYS, projection, real_relay
from tests.relay_service.client.test_site_relay import device, echo, shop

OLD, NEW = SITE_KEYS, STRANGER_KEYS
HOUR_MS = 3_600_000


def rotated(*, window_ms: int = HOUR_MS) -> Projection:
    link = sign_link(OLD, NEW.key_id)
    succeeds = (SuccessionLink(link.identity, link.signature),)
    until_ms = SystemClock().now_ms() + window_ms
    return replace(projection(), sites=(ProjectedSite("shop", NEW.public, succeeds, until_ms),))


def new_shop(address: str, *earlier: Keys) -> Site:
    return Site(address, site_id="shop", keys=NEW, earlier_keys=earlier)


async def answer(shop_now: Site, prompt: str, job_id: str | None = None) -> str:
    job = await shop_now.enqueue(GeneratePayload(prompt), owner="alice", job_id=job_id)
    return (await job.result(10)).text


async def test_devices_follow_a_rotation_while_they_are_connected(tmp_path: Path) -> None:
    log = tmp_path / "prompts.jsonl"
    async with real_relay() as relay, device(relay, prompt_log=PromptLog(log)) as daemon, shop(relay) as old:
        assert await answer(old, "before") == "echo: before"
        relay.source.replace(rotated())
        await eventually(lambda: daemon._pins.get(NEW.key_id) == NEW.public)

        # Stubs may name either key now.
        assert await answer(old, "by the old key") == "echo: by the old key"
        async with new_shop(relay.address) as new:
            assert await answer(new, "by the new key") == "echo: by the new key"
    events = [line for line in map(json.loads, log.read_text().splitlines()) if "event" in line]
    adopted = [{key: line[key] for key in line if key != "at_ms"} for line in events]
    assert adopted == [
        {"event": "first-job", "site": OLD.key_id},
        {"event": "site-adopted", "site": OLD.key_id, "successor": NEW.key_id},
        {"event": "first-job", "site": NEW.key_id},
    ]


async def test_a_job_from_before_the_rotation_is_sealed_by_the_key_that_it_names() -> None:
    async with real_relay() as relay:
        async with shop(relay) as old:
            await old.enqueue(GeneratePayload("hello"), owner="alice", job_id="j-1")
        relay.source.replace(rotated())
        async with new_shop(relay.address, OLD) as new:
            job = await new.enqueue(GeneratePayload("hello"), owner="alice", job_id="j-1")
            async with device(relay):
                assert (await job.result(10)).text == "echo: hello"
                assert job.requeues == 0


async def test_a_result_that_was_sealed_to_the_old_key_is_opened() -> None:
    gate = asyncio.Event()

    async def gated(context: JobContext) -> Outcome:
        await gate.wait()
        return OkOutcome("late")

    async with real_relay() as relay, device(relay, gated) as daemon:
        async with shop(relay) as old:
            job = await old.enqueue(GeneratePayload("hello"), owner="alice", job_id="j-1")
            await job.sealed(10)
            await eventually(lambda: daemon.active == 1)
        relay.source.replace(rotated())
        gate.set()
        await eventually(lambda: daemon.active == 0 and daemon.undelivered == 0)
        async with new_shop(relay.address, OLD) as new:
            assert (await new.read_result("j-1")).text == "late"


@pytest.mark.parametrize("streams", [True, False])
async def test_a_site_may_have_its_new_keys_before_the_relay_has(streams: bool) -> None:
    async with real_relay() as relay, device(relay) as daemon:
        early = Site(relay.address, site_id="shop", keys=NEW, earlier_keys=[OLD], streams=streams)
        async with early as site_now:
            assert await answer(site_now, "still the old key") == "echo: still the old key"
            relay.source.replace(rotated())
            await eventually(lambda: daemon._pins.get(NEW.key_id) == NEW.public)
            assert await answer(site_now, "within the window") == "echo: within the window"
            # The window is over at once.
            relay.source.replace(rotated(window_ms=-1))
            await eventually(lambda: daemon._pins.get(OLD.key_id) is None)
            assert await answer(site_now, "the new key") == "echo: the new key"


async def test_a_call_finds_the_new_key_before_the_stream_does() -> None:
    """That a stream met a refusal once is no reason to give up a call."""
    async with (
        real_relay() as relay,
        Site(relay.address, site_id="shop", keys=NEW, earlier_keys=[OLD]) as site_now,
    ):
        # The hello has been refused by the new key and accepted by the old one, and that one's time is over.
        relay.source.replace(rotated(window_ms=-1))
        await asyncio.gather(*(site_now.read_inbox() for _ in range(3)))
        assert site_now._signing_key_id == NEW.key_id


@pytest.mark.parametrize("streams", [True, False])
async def test_a_site_none_of_whose_keys_are_known_is_told(streams: bool) -> None:
    stranger = Keys(b"\x0b" * 32, b"\x0c" * 32, 1)
    async with real_relay() as relay:
        with pytest.raises(RelayError, match="BAD_SIGNATURE"):
            async with Site(
                relay.address,
                site_id="shop",
                keys=stranger,
                earlier_keys=[NEW],
                streams=streams,
                connect_timeout=1,
            ) as nobody:
                await nobody.enqueue(GeneratePayload("x"), owner="alice")


async def test_an_old_key_that_has_had_its_time_is_refused_by_everybody() -> None:
    async with real_relay() as relay, device(relay, echo) as daemon:
        relay.source.replace(rotated(window_ms=-1))
        await eventually(lambda: daemon._pins.get(NEW.key_id) == NEW.public)
        assert daemon._pins.get(OLD.key_id) is None
        with pytest.raises(RelayError, match="BAD_SIGNATURE"):
            async with shop(relay):
                pass


def test_rotate_makes_new_keys_and_the_word_of_the_old_ones(tmp_path: Path) -> None:
    keys = key_file(tmp_path, OLD, "site-keys.json")
    made = site("rotate", "--keys", keys)
    new = Keys.load(tmp_path / "next-site-keys.json")

    assert made.exit_code == 0
    assert json.loads(made.stdout) == sign_link(OLD, new.key_id).to_json()
    assert f"key id {OLD.key_id} is succeeded by {new.key_id}" in made.stderr
    # Nothing is made anew when it is asked again.
    assert site("rotate", "--keys", keys).stdout == made.stdout


def test_rotate_needs_keys_and_other_ones(tmp_path: Path) -> None:
    keys = key_file(tmp_path, OLD)
    same = site("rotate", "--keys", keys, "--new-keys", keys)

    assert same.exit_code == 2
    assert "holds the present keys" in same.stderr
    missing = site("rotate", "--keys", str(tmp_path / "none.json"))
    assert missing.exit_code == 1
    assert "relay-site keygen" in missing.stderr
