"""The relay-daemon command."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from relay_service.client import GeneratePayload, Site
from tests.harness.waiting import eventually
from tests.relay_service.client.commands import (
    DAEMON,
    command,
    daemon,
    end_of,
    ended,
    identity_file,
    key_file,
)
from tests.relay_service.client.real_relay import (
    DEVICE_KEYS,
    SITE_KEYS,
    STRANGER_KEYS,
    RealRelay,
    projection,
    real_relay,
)
from tests.relay_service.client.test_site_rotation import rotated

UPPER = "import sys; sys.stdout.write(sys.stdin.read().upper())"
SLOW = "import sys, time; sys.stdin.read(); print('started', flush=True); time.sleep(60)"


def options(folder: Path, relay: RealRelay | str, keys: Any = DEVICE_KEYS) -> list[str]:
    address = relay if isinstance(relay, str) else relay.address
    return [
        "--relay",
        address,
        "--runner-id",
        "desk",
        "--keys",
        key_file(folder, keys),
        "--site-pin",
        identity_file(folder, SITE_KEYS, "site.json"),
    ]


def program(code: str) -> list[str]:
    return ["--backend", "command", "--", sys.executable, "-c", code]


def serving(folder: Path, relay: RealRelay, code: str = UPPER, *more: str) -> Any:
    log = ["--prompt-log", str(folder / "prompts.jsonl"), "--owner", "alice", *more]
    return command(DAEMON, "run", *options(folder, relay), *log, *program(code))


# -- without a relay --------------------------------------------------------------------


def test_keygen_and_identity_print_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
    made = daemon("keygen", "--keys", path)

    assert made.exit_code == 0
    assert daemon("identity", "--keys", path).stdout == made.stdout
    assert json.loads(made.stdout).keys() == {"identity", "encryption", "encryptionSig"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--runner-id is missing"),
        (["--runner-id", "desk"], "nothing can answer prompts"),
        (["--runner-id", "desk", "--backend", "ollama"], "--model is missing"),
        (["--runner-id", "desk", "--backend", "ollama", "--model", "m"], "no site would be served"),
        (["--runner-id", "desk", "--model", "m"], "--model needs --backend"),
        (["--runner-id", "desk", "--", "cat"], "needs --backend command"),
        (["--runner-id", "desk", "--backend", "command"], "argv"),
        (["--runner-id", "desk", "--backend", "openai-http", "--model", "m"], "base_url"),
        (["--runner-id", "desk", "--backend", "nothing"], "is not one of"),
    ],
)
def test_what_is_missing_is_named(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever runs this may have paired this machine.
    monkeypatch.setenv("HOME", str(tmp_path))
    refused = daemon("run", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_broken_configuration_is_named_with_its_file(tmp_path: Path) -> None:
    config = tmp_path / "daemon.toml"
    config.write_text('runner_id = "desk"\nrelai = "127.0.0.1:1"\nrelay = "127.0.0.1:1"\n')
    refused = daemon("run", "--config", str(config))

    assert refused.exit_code == 2
    assert f"{config}: relai: unknown key; is relay meant?" in refused.stderr


def test_a_pin_that_is_no_identity_is_named(tmp_path: Path) -> None:
    pin = tmp_path / "site.json"
    pin.write_text('{"identity": "AA"}')
    refused = daemon("run", "--runner-id", "d", "--backend", "ollama", "--model", "m", "--site-pin", str(pin))

    assert refused.exit_code == 2
    assert f"{pin}: not a public identity" in refused.stderr


def test_every_command_explains_itself() -> None:
    for arguments in ([], ["run"], ["status"], ["keygen"], ["identity"], ["pair"]):
        shown = daemon(*arguments, "--help")
        assert shown.exit_code == 0
        assert "Exit status:" in shown.stdout


# -- with a relay -----------------------------------------------------------------------


async def answer_of(relay: RealRelay, prompt: str) -> Any:
    async with Site(relay.address, site_id="shop", keys=SITE_KEYS) as site:
        job = await site.enqueue(GeneratePayload(prompt), owner="alice")
        return await job.result(20)


@pytest.mark.process
async def test_run_serves_a_program_until_sigterm(tmp_path: Path) -> None:
    async with real_relay() as relay, serving(tmp_path, relay) as process:
        await process.wait_line("offers .*llm.generate by command")
        result = await answer_of(relay, "hello")
        await process.wait_line("is done: ok")
        process.terminate()
        done = await ended(process)

    assert result.text.strip() == "HELLO"
    assert result.ran.backend_class == "process"
    assert done.status == 0
    assert done.stdout == []
    assert '"text": "hello"' in (tmp_path / "prompts.jsonl").read_text()
    assert "hello" not in "\n".join(done.stderr)
    assert list((tmp_path / "spool" / "desk").glob("*.result")) == []


@pytest.mark.process
async def test_sigterm_gives_back_what_does_not_finish_within_the_grace(tmp_path: Path) -> None:
    async with (
        real_relay() as relay,
        serving(tmp_path, relay, SLOW, "--grace", "0") as process,
        Site(relay.address, site_id="shop", keys=SITE_KEYS) as site,
    ):
        job = await site.enqueue(GeneratePayload("a"), owner="alice")
        await process.wait_line("begins")
        process.terminate()
        done = await ended(process)
        await eventually(lambda: job.requeues == 1)

    assert done.status == 0


@pytest.mark.process
async def test_a_revoked_device_ends_with_one_line(tmp_path: Path) -> None:
    async with real_relay() as relay, serving(tmp_path, relay, UPPER, "--quiet") as process:
        await eventually(lambda: len(relay.server.relay.daemons) == 1, 20)
        relay.source.replace(projection(revoked=True))
        done = await ended(process)

    assert done.status == 1
    assert "DEVICE_REVOKED" in done.error
    assert "ask the relay's operator why; to come back, pair with new keys (--keys FILE)" in done.error


@pytest.mark.process
async def test_a_version_below_the_floor_ends_with_what_to_do(tmp_path: Path) -> None:
    async with real_relay(daemon_floor="99.0.0") as relay:
        done = await end_of(DAEMON, "run", *options(tmp_path, relay), "--no-prompt-log", *program(UPPER))

    assert done.status == 4
    assert "is too old for this relay, which serves 99.0.0 and later: upgrade sealwork" in done.error


@pytest.mark.process
async def test_an_offered_version_is_told_once_and_shown_by_status(tmp_path: Path) -> None:
    async with real_relay(offered_version="99.1.0") as relay, serving(tmp_path, relay) as process:
        await process.wait_line("the relay's operator offers version 99.1.0")
        await relay.restart()
        await eventually(lambda: len(relay.server.relay.daemons) == 1, 20)
        process.terminate()
        done = await ended(process)
    device = ["--relay", "127.0.0.1:1", "--runner-id", "desk", "--keys", str(tmp_path / "keys.json")]
    shown = (await end_of(DAEMON, "status", *device, *program(UPPER))).stdout

    assert len([line for line in done.stderr if "99.1.0" in line]) == 1
    assert "update       the relay's operator offers version 99.1.0" in shown


@pytest.mark.process
async def test_status_knows_the_keys_that_the_device_has_learned(tmp_path: Path) -> None:
    async with real_relay() as relay, serving(tmp_path, relay) as process:
        await eventually(lambda: len(relay.server.relay.daemons) == 1, 20)
        relay.source.replace(rotated())
        await process.wait_line(f"has the new key {STRANGER_KEYS.key_id}")
        device = ["--relay", relay.address, "--runner-id", "desk", "--keys", str(tmp_path / "keys.json")]
        pin = ["--site-pin", str(tmp_path / "site.json")]
        shown = (await end_of(DAEMON, "status", *device, *pin, *program(UPPER))).stdout

    assert [line for line in shown if line.startswith("pinned site")] == [
        f"pinned site  {key_id}" for key_id in sorted((SITE_KEYS.key_id, STRANGER_KEYS.key_id))
    ]
    assert "connection   answers; 1 site(s) may send work here" in shown


@pytest.mark.process
async def test_an_unknown_device_ends_with_one_line(tmp_path: Path) -> None:
    async with real_relay() as relay:
        done = await end_of(
            DAEMON, "run", *options(tmp_path, relay, STRANGER_KEYS), "--no-prompt-log", *program(UPPER)
        )

    assert done.status == 1
    assert "BAD_SIGNATURE" in done.error


@pytest.mark.process
async def test_status_shows_the_configuration_and_checks_everything(tmp_path: Path) -> None:
    async with real_relay() as relay:
        given = options(tmp_path, relay)
        good = await end_of(DAEMON, "status", *given, *program(UPPER))
        bad = await end_of(
            DAEMON,
            "status",
            *given,
            "--backend",
            "ollama",
            "--model",
            "m",
            "--base-url",
            "http://127.0.0.1:1",
        )
    gone = await end_of(DAEMON, "status", *given, *program(UPPER))

    shown = "\n".join(good.stdout)
    assert good.status == 0
    assert "key id       BYOLLM-PRQ8-CZX2-YCXF-WRPN-TTRP-8BGP" in shown
    assert "pinned site  BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK" in shown
    assert "for the owner alone: ready" in shown
    assert "connection   answers; 1 site(s) may send work here" in shown
    assert bad.status == 1
    assert "does not answer" in "\n".join(bad.stdout)
    assert gone.status == 1
    assert "check the address, and that the relay is running" in "\n".join(gone.stdout)
