"""What a device does with grants, payloads and verdicts, seen from the relay's end of the stream."""

from pathlib import Path
from typing import Any

import pytest

from relay_service.client import ErrorOutcome, GeneratePayload, OkOutcome
from relay_service.client.outcomes import RunMetadata, SealedOutcome
from relay_service.client.prompt_log import PromptLog
from relay_service.client.succession import sign_link
from relay_service.client.wire import identity_to_proto
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from tests.harness.waiting import eventually
from tests.relay_service.client.daemon_words import LOST, TEAM, consented, directory, refusal
from tests.relay_service.client.real_relay import (
    GENERATE,
    OTHER_DEVICE_KEYS,
    SITE_KEYS,
    STRANGER_KEYS,
)
from tests.relay_service.client.scripted_device import (
    START_MS,
    ServerItem,
    Work,
    lease_ref,
    opened_result,
    payload,
    played_relay,
)

# -- one job ----------------------------------------------------------------------------


async def test_the_hello_states_what_is_offered_held_and_wanted() -> None:
    async with played_relay(slots=3) as relay:
        hello = relay.hello

        assert (hello.runner_id, hello.protocol_version, hello.client_name) == ("desk", 1, "sealwork-python")
        assert [(row.kind, row.service, row.model) for row in hello.matrix] == [
            ("llm.generate", "desk", "small")
        ]
        assert hello.matrix[0].offer_scope == job_pb2.AUDIENCE_PRIVATE
        assert list(hello.inventory.leases) == []
        assert hello.credit.limit == 3
        assert list(hello.capabilities) == [1]


async def test_a_job_from_grant_to_result() -> None:
    async with played_relay() as relay:
        await relay.grant("j-1")
        ack = await relay.stream.next_item("grant_ack")
        assert list(ack.leases) == [lease_ref("j-1")]
        await relay.payload("j-1")
        await eventually(lambda: len(relay.work.started) == 1)
        context = relay.work.started[0]
        relay.work.gate.set()
        request = await relay.completed()
        await eventually(lambda: relay.daemon.undelivered == 0)

        assert context.payload == GeneratePayload("hello")
        assert (context.job_id, context.kind, context.owner, context.own) == (
            "j-1",
            "llm.generate",
            "alice",
            True,
        )
        assert context.site == SITE_KEYS.key_id
        assert context.limits.wall_clock_seconds == 600
        assert context.seconds_left() == 60
        assert request.lease == lease_ref("j-1")
        assert request.disposition == job_pb2.DISPOSITION_OK
        assert request.envelope.recipient_key_id == SITE_KEYS.key_id
        outcome, ran = opened_result(request)
        assert outcome == OkOutcome("an answer")
        assert (ran.model, ran.backend_class, ran.stop) == ("small", "http", "unknown")


async def test_a_slot_that_is_free_again_is_offered_at_once() -> None:
    async with played_relay(slots=2) as relay:
        await relay.start("j-1")
        assert relay.stream.items("credit") == []
        relay.work.gate.set()
        await relay.completed()

        # One was granted and two more are welcome.
        assert (await relay.stream.next_item("credit")).limit == 3


async def test_a_handler_may_say_what_ran() -> None:
    ran = RunMetadata("large", "process", 5, "length", stop_reported=True)
    async with played_relay(Work(outcome=SealedOutcome(OkOutcome("x"), ran))) as relay:
        relay.work.gate.set()
        await relay.grant("j-1")
        await relay.payload("j-1")

        assert opened_result(await relay.completed()).ran == ran


async def test_a_payload_that_is_not_inline_is_fetched() -> None:
    async with played_relay() as relay:
        await relay.grant("j-1")
        ready = daemon_plane_pb2.PayloadReady(lease=lease_ref("j-1"), size_bytes=1_000)
        await relay.stream.send(ServerItem(payload_ready=ready))
        call = await relay.call()
        assert call.fetch_payload.lease == lease_ref("j-1")
        await relay.reply(call, fetch_payload=daemon_plane_pb2.FetchPayloadResponse(envelope=payload("j-1")))

        await eventually(lambda: len(relay.work.started) == 1)


async def test_a_large_payload_is_fetched_by_unary_call() -> None:
    prompt = "x" * 3_900
    answer = daemon_plane_pb2.FetchPayloadResponse(envelope=payload("j-1", prompt))
    async with played_relay(unary={"FetchPayload": lambda _: answer.SerializeToString()}) as relay:
        await relay.grant("j-1")
        ready = daemon_plane_pb2.PayloadReady(lease=lease_ref("j-1"), size_bytes=32_769)
        await relay.stream.send(ServerItem(payload_ready=ready))

        await eventually(lambda: len(relay.work.started) == 1)
        assert relay.work.started[0].payload == GeneratePayload(prompt)


async def test_a_payload_that_is_not_there_yet_is_asked_for_again() -> None:
    async with played_relay(
        unary={
            "FetchPayload": lambda _: daemon_plane_pb2.FetchPayloadResponse(
                envelope=payload("j-1")
            ).SerializeToString()
        }
    ) as relay:
        await relay.grant("j-1")
        await relay.stream.send(ServerItem(payload_ready={"lease": lease_ref("j-1"), "size_bytes": 10}))
        call = await relay.call()
        error = refusal("PAYLOAD_NOT_SEALED", retry_after_ms=1_500).to_status("d")
        await relay.reply(call, error=error)
        await relay.reaches("waiting")
        await relay.clock.advance_async(1_500)

        await eventually(lambda: len(relay.work.started) == 1)


@pytest.mark.parametrize("reason", ["STALE_LEASE", "JOB_NOT_FOUND", "NOT_LEASE_HOLDER", "JOB_FINISHED"])
async def test_a_job_that_is_gone_when_its_payload_is_fetched_is_dropped(reason: str) -> None:
    async with played_relay() as relay:
        await relay.grant("j-1")
        await relay.stream.send(ServerItem(payload_ready={"lease": lease_ref("j-1"), "size_bytes": 10}))
        await relay.reply(await relay.call(), error=refusal(reason).to_status("d"))

        await eventually(lambda: relay.daemon.active == 0)
        assert (await relay.stream.next_item("credit")).limit == 3


async def test_a_payload_that_is_announced_again_runs_once() -> None:
    async with played_relay() as relay:
        await relay.start("j-1")
        await relay.payload("j-1")
        await relay.grant("j-1")
        await relay.grant("j-2", lease="l-2")
        await relay.stream.next_item("grant_ack", after=2)

        assert [context.job_id for context in relay.work.started] == ["j-1"]
        assert relay.daemon.active == 2


async def test_a_large_result_goes_by_unary_call() -> None:
    answer = daemon_plane_pb2.CompleteJobResponse(accepted=True).SerializeToString()
    async with played_relay(
        Work(outcome=OkOutcome("a" * 50_000)), unary={"CompleteJob": lambda _: answer}
    ) as relay:
        relay.work.gate.set()
        await relay.grant("j-1")
        await relay.payload("j-1")
        await eventually(lambda: relay.server.seen("CompleteJob"))
        await eventually(lambda: relay.daemon.undelivered == 0)

        assert relay.stream.items("call") == []


async def test_an_answer_that_is_too_large_for_an_envelope_is_an_error() -> None:
    async with played_relay(Work(outcome=OkOutcome("a" * 6_000_000))) as relay:
        relay.work.gate.set()
        await relay.grant("j-1")
        await relay.payload("j-1")
        request = await relay.completed()

        assert request.disposition == job_pb2.DISPOSITION_ERROR
        outcome = opened_result(request).outcome
        assert isinstance(outcome, ErrorOutcome)
        assert (outcome.code, outcome.retryable) == ("output-too-large", False)


# -- what is not run --------------------------------------------------------------------


async def test_a_site_that_is_not_pinned_is_refused_after_a_look_at_the_directory() -> None:
    sites = directory(consented(SITE_KEYS), consented(STRANGER_KEYS))
    async with played_relay(unary={"GetSites": lambda _: sites()}) as relay:
        await relay.grant("j-1", site=STRANGER_KEYS)
        request = await relay.released()

        assert request.reason == daemon_plane_pb2.RELEASE_REASON_REFUSED
        assert list(request.leases) == [lease_ref("j-1")]
        assert len(relay.server.seen("GetSites")) == 1
        assert relay.work.started == []


async def test_a_new_key_of_a_pinned_site_is_adopted() -> None:
    link = sign_link(SITE_KEYS, STRANGER_KEYS.key_id)
    succeeds = [{"identity": identity_to_proto(link.identity), "signature": link.signature}]
    sites = directory(consented(STRANGER_KEYS, succeeds=succeeds))
    async with played_relay(unary={"GetSites": lambda _: sites()}) as relay:
        await relay.grant("j-1", site=STRANGER_KEYS)
        await relay.payload("j-1", site=STRANGER_KEYS)

        await eventually(lambda: len(relay.work.started) == 1)


async def test_a_directory_can_be_trusted() -> None:
    sites = directory(consented(STRANGER_KEYS))
    async with played_relay(unary={"GetSites": lambda _: sites()}, pins=[], trust_directory=True) as relay:
        await relay.grant("j-1", site=STRANGER_KEYS)
        await relay.payload("j-1", site=STRANGER_KEYS)

        await eventually(lambda: len(relay.work.started) == 1)


@pytest.mark.parametrize(
    "sealed",
    [
        {"site": STRANGER_KEYS},
        {"device": OTHER_DEVICE_KEYS},
        {"deadline_at_ms": START_MS},
        {"plaintext": "not json"},
        {"plaintext": '{"prompt":"hello","model":"mine"}'},
    ],
)
async def test_a_payload_that_is_not_the_sites_own_is_given_back_as_bad(sealed: dict[str, Any]) -> None:
    async with played_relay(pins=[SITE_KEYS.public, STRANGER_KEYS.public]) as relay:
        await relay.grant("j-1")
        await relay.payload("j-1", **sealed)
        request = await relay.released()

        assert request.reason == daemon_plane_pb2.RELEASE_REASON_BAD_ENVELOPE
        assert relay.work.started == []


@pytest.mark.parametrize(
    ("row", "stub", "taken"),
    [
        (GENERATE, {"owner": "alice"}, True),
        (GENERATE, {"owner": "alice", "audience": job_pb2.AUDIENCE_PRIVATE}, True),
        (GENERATE, {"owner": "bob"}, False),
        (TEAM, {"owner": "bob"}, False),
        (TEAM, {"owner": "bob", "audience": job_pb2.AUDIENCE_PRIVATE}, False),
        (TEAM, {"owner": "alice", "kind": "llm.chat"}, False),
    ],
)
async def test_the_owner_decides_whom_a_service_is_for(row: Any, stub: dict[str, Any], taken: bool) -> None:
    async with played_relay(matrix=(row,)) as relay:
        await relay.grant("j-1", **stub)
        if taken:
            await relay.stream.next_item("grant_ack")
            assert relay.daemon.active == 1
        else:
            assert (await relay.released()).reason == daemon_plane_pb2.RELEASE_REASON_REFUSED
            # The slot is still free, so another grant is welcome.
            assert (await relay.stream.next_item("credit")).limit == 3


async def test_a_device_that_knows_no_owner_takes_private_jobs_alone() -> None:
    async with played_relay(owner=None) as relay:
        await relay.grant("j-1")
        assert list((await relay.released()).leases) == [lease_ref("j-1")]
        await relay.grant("j-2", lease="l-2", audience=job_pb2.AUDIENCE_PRIVATE)
        assert list((await relay.stream.next_item("grant_ack")).leases) == [lease_ref("j-2", "l-2")]


async def test_a_payload_larger_than_announced_is_refused() -> None:
    async with played_relay() as relay:
        await relay.grant("j-1", size_class=job_pb2.SIZE_CLASS_SMALL)
        await relay.payload("j-1", prompt="x" * 4_001)

        assert (await relay.released()).reason == daemon_plane_pb2.RELEASE_REASON_REFUSED


async def test_a_run_ends_with_the_jobs_deadline() -> None:
    async with played_relay() as relay:
        await relay.start("j-1", deadline_at_ms=START_MS + 30_000)

        assert relay.work.started[0].limits.wall_clock_seconds == 30


async def test_prompts_are_logged_before_they_run_and_nothing_runs_without(tmp_path: Path) -> None:
    log = tmp_path / "prompts.jsonl"
    async with played_relay(prompt_log=PromptLog(log)) as relay:
        await relay.start("j-1")
        assert '"job_id": "j-1"' in log.read_text()
        assert '"text": "hello"' in log.read_text()

        log.unlink()
        log.mkdir()
        await relay.grant("j-2", lease="l-2")
        await relay.payload("j-2", lease="l-2")
        request = await relay.released()
        assert request.reason == daemon_plane_pb2.RELEASE_REASON_BACKEND_DOWN
        assert len(relay.work.started) == 1


async def test_a_job_that_keeps_coming_back_is_refused_at_last() -> None:
    async with played_relay() as relay:
        for number in range(3):
            lease = f"l-{number}"
            await relay.grant("j-1", lease=lease, seconds=600)
            await relay.payload("j-1", lease=lease)
            if number:
                # Not at once again: thirty seconds after the last begin.
                await relay.reaches("running", lease)
                await relay.clock.advance_async(29_000)
                assert len(relay.work.started) == number
                await relay.clock.advance_async(1_000)
            await relay.begun(number + 1)
            await relay.verdict("j-1", LOST, lease=lease)
            await eventually(lambda: relay.daemon.active == 0)
        await relay.grant("j-1", lease="l-3")
        await relay.payload("j-1", lease="l-3")

        assert (await relay.released()).reason == daemon_plane_pb2.RELEASE_REASON_REFUSED
