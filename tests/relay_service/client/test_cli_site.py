"""The relay-site command."""

import asyncio
import json
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from relay_service.client import ErrorOutcome, GeneratePayload, JobContext, OkOutcome
from relay_service.client.outcomes import Outcome
from tests.harness.waiting import eventually
from tests.relay_service.client.commands import SITE, command, end_of, ended, key_file, site
from tests.relay_service.client.real_relay import SITE_KEYS, STRANGER_KEYS, RealRelay, real_relay
from tests.relay_service.client.test_site_relay import device, echo, shop


def options(folder: Path, relay: RealRelay, keys: Any = SITE_KEYS) -> list[str]:
    return ["--relay", relay.address, "--site-id", "shop", "--keys", key_file(folder, keys)]


# -- without a relay --------------------------------------------------------------------


def test_keygen_makes_a_private_file_and_prints_the_public_half(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "keys.json"
    made = site("keygen", "--keys", str(path))
    again = site("identity", "--keys", str(path))

    assert made.exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(json.loads(made.stdout)) == ["encryption", "encryptionSig", "identity"]
    assert "key id BYOLLM-" in made.stderr
    assert again.stdout == made.stdout


def test_keygen_does_not_replace_keys(tmp_path: Path) -> None:
    path = key_file(tmp_path, SITE_KEYS)
    before = Path(path).read_bytes()
    refused = site("keygen", "--keys", path)

    assert refused.exit_code == 1
    assert "they were left as they are" in refused.stderr
    assert Path(path).read_bytes() == before


def test_identity_makes_keys_if_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    shown = site("identity", "--keys", str(path))

    assert shown.exit_code == 0
    assert path.exists()
    assert "new keys in" in shown.stderr


def test_keys_that_others_can_read_are_refused_in_one_line(tmp_path: Path) -> None:
    path = Path(key_file(tmp_path, SITE_KEYS))
    path.chmod(0o644)
    refused = site("ask", "hi", "--owner", "alice", "--keys", str(path))

    assert refused.exit_code == 1
    assert "chmod 600" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_without_keys_it_says_how_to_make_some(tmp_path: Path) -> None:
    refused = site("ask", "hi", "--owner", "alice", "--keys", str(tmp_path / "none.json"))

    assert refused.exit_code == 1
    assert "make them with: relay-site keygen" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--relay", "nowhere"], "is not HOST:PORT"),
        (["--relay", "relay.example.org:443"], "add --tls, or --plaintext"),
        (["--plaintext", "--tls"], "cannot be given together"),
    ],
)
def test_an_address_that_cannot_be_used_is_a_wrong_option(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    keys = key_file(tmp_path, SITE_KEYS)
    refused = site("ask", "hi", "--owner", "alice", "--keys", keys, *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr


def test_an_empty_prompt_is_refused_in_one_line(tmp_path: Path) -> None:
    refused = site("ask", "", "--owner", "alice", "--keys", key_file(tmp_path, SITE_KEYS))

    assert refused.exit_code == 1
    assert refused.stderr == "Error: prompt is empty\n"


def test_every_command_explains_itself() -> None:
    for arguments in ([], ["ask"], ["enqueue"], ["cancel"], ["watch"], ["keygen"], ["identity"]):
        shown = site(*arguments, "--help")
        assert shown.exit_code == 0
        assert "Exit status:" in shown.stdout


# -- with a relay -----------------------------------------------------------------------


@pytest.mark.process
async def test_ask_prints_the_answer_and_nothing_else(tmp_path: Path) -> None:
    async with real_relay() as relay, device(relay):
        done = await end_of(SITE, "ask", "hello", "--owner", "alice", *options(tmp_path, relay))

    assert (done.status, done.stdout, done.stderr) == (0, ["echo: hello"], [])


@pytest.mark.process
async def test_ask_prints_the_outcome_as_json(tmp_path: Path) -> None:
    async with real_relay() as relay, device(relay):
        done = await end_of(
            SITE, "ask", "hé", "--owner", "alice", "--json", "--job-id", "j-1", *options(tmp_path, relay)
        )

    outcome = json.loads(done.stdout[0])
    assert (outcome["job_id"], outcome["disposition"], outcome["text"]) == ("j-1", "ok", "echo: hé")
    assert (outcome["runner_id"], outcome["model"]) == ("desk", "small")


@pytest.mark.process
async def test_an_error_of_the_device_has_a_status_of_its_own(tmp_path: Path) -> None:
    async def fail(context: JobContext) -> Outcome:
        return ErrorOutcome("timeout", "it took too long", retryable=True)

    async with real_relay() as relay, device(relay, fail):
        done = await end_of(SITE, "ask", "hello", "--owner", "alice", *options(tmp_path, relay))

    assert (done.status, done.stdout) == (3, [])
    assert done.error == ("Error: the device reports timeout: it took too long; it may work when asked again")


@pytest.mark.process
async def test_refusals_are_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    async with real_relay() as relay:
        done = await end_of(
            SITE, "ask", "hello", "--owner", "alice", *options(tmp_path, relay, STRANGER_KEYS)
        )

    assert done.status == 1
    assert len(done.stderr) == 1
    assert "BAD_SIGNATURE" in done.error
    assert "check that the relay's projection has this id" in done.error


@pytest.mark.process
async def test_a_job_that_nobody_can_take_ends_with_its_deadline(tmp_path: Path) -> None:
    async with real_relay() as relay:
        done = await end_of(
            SITE, "ask", "hello", "--owner", "alice", "--deadline", "1", *options(tmp_path, relay)
        )

    assert done.status == 1
    assert "its deadline passed before any device answered" in done.error


@pytest.mark.process
async def test_an_interrupted_ask_withdraws_its_job_and_says_why_it_waited(tmp_path: Path) -> None:
    async with real_relay() as relay:
        store = relay.server.relay.store
        async with command(SITE, "ask", "hello", "--owner", "alice", *options(tmp_path, relay)) as process:
            await process.wait_line("No device has taken the job yet. Is a relay-daemon of alice running")
            process._signal(signal.SIGINT)
            done = await ended(process)
        await eventually(lambda: _no_jobs(store))

    assert done.status == 130
    assert len(done.stderr) == 1


async def _no_jobs(store: Any) -> bool:
    return not await store.jobs()


@pytest.mark.process
async def test_enqueue_leaves_once_a_device_has_the_payload_and_watch_reads_the_answer(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()

    async def gated(context: JobContext) -> Outcome:
        await gate.wait()
        return await echo(context)

    async with real_relay() as relay, device(relay, gated) as daemon:
        given = options(tmp_path, relay)
        sent = await end_of(SITE, "enqueue", "hello", "--owner", "alice", "--job-id", "j-1", *given)
        assert (sent.status, sent.stdout) == (0, ["j-1"])
        before = await end_of(SITE, "watch", "--once", *given)
        gate.set()
        await eventually(lambda: daemon.active == 0 and daemon.undelivered == 0)
        after = await end_of(SITE, "watch", "--once", "--settle", *given)
        last = await end_of(SITE, "watch", "--once", *given)

    assert (before.status, before.stdout) == (0, [])
    line = json.loads(after.stdout[0])
    assert (line["job_id"], line["notice"], line["text"]) == ("j-1", "result_ready", "echo: hello")
    assert last.stdout == []


@pytest.mark.process
async def test_watch_prints_what_comes(tmp_path: Path) -> None:
    async with real_relay() as relay:
        given = options(tmp_path, relay)
        async with command(SITE, "watch", *given) as process:
            await eventually(lambda: len(relay.server.relay.sites) == 1, 20)
            # This one has no stream, so what is pushed goes to the watch.
            async with device(relay), shop(relay, streams=False) as other:
                job = await other.enqueue(GeneratePayload("hi"), owner="alice", job_id="j-1")
                match = await process.wait_line(r'"notice": "please_seal"')
                await job.result(20)
            process._signal(signal.SIGINT)
            assert (await ended(process)).status == 130
    assert json.loads(match.string)["job_id"] == "j-1"


@pytest.mark.process
async def test_cancel_tells_whether_there_was_such_a_job(tmp_path: Path) -> None:
    async def forever(context: JobContext) -> Outcome:
        await asyncio.Event().wait()
        return OkOutcome("never")

    async with real_relay() as relay, device(relay, forever):
        given = options(tmp_path, relay)
        await end_of(SITE, "enqueue", "hello", "--owner", "alice", "--job-id", "j-1", *given)
        known = await end_of(SITE, "cancel", "j-1", *given)
        unknown = await end_of(SITE, "cancel", "j-2", *given)

    assert (known.status, known.stdout) == (0, ["j-1 is withdrawn"])
    assert unknown.status == 1
    assert unknown.error == "Error: the relay knows no job j-2 of this site"
