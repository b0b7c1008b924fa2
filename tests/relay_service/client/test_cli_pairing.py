"""The pair command at a relay, as its user sees it."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from relay_service.client import GeneratePayload, Site
from relay_service.client.keys import Keys
from tests.harness.waiting import eventually
from tests.relay_service.client.commands import DAEMON, command, end_of, ended
from tests.relay_service.client.real_relay import SITE_KEYS, RealRelay, real_relay

UPPER = "import sys; sys.stdout.write(sys.stdin.read().upper())"
CODE = r"^  code +([0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4})$"


def pairing(folder: Path, relay: RealRelay, *more: str) -> Any:
    keys = str(folder / "device" / "keys.json")
    return command(DAEMON, "pair", "--relay", relay.address, "--keys", keys, *more)


async def code_of(process: Any) -> str:
    match: re.Match[str] = await process.wait_line(CODE, 30)
    return match[1]


@pytest.mark.process
async def test_a_device_pairs_and_then_runs_with_nothing_more(tmp_path: Path) -> None:
    async with real_relay() as relay:
        async with pairing(tmp_path, relay, "--label", "Küche") as process:
            code = await code_of(process)
            await process.wait_line("waiting for approval, (10:00|9:59) left")
            (waiting,) = await relay.server.pairing.pending()
            runner_id = await relay.server.pairing.approve(code, "alice", "operator")
            done = await ended(process)
        keys = tmp_path / "device" / "keys.json"
        own = Keys.load(keys)

        assert done.status == 0, done.stderr
        assert (waiting.label, waiting.key_id) == ("Küche", own.key_id)
        assert f"  key id  {own.key_id}" in done.stdout
        assert f"  relay-service approve {code} --owner NAME" in done.stdout
        assert done.stdout[-4:] == [
            f"Paired: this device is {runner_id}, owned by alice.",
            f"  pinned site  {SITE_KEYS.key_id}",
            f"  kept in      {tmp_path / 'device' / 'keys.pairing.json'}",
            f"Now let it answer, with a back end of yours: relay-daemon run --keys {keys} --backend ...",
        ]
        assert (tmp_path / "device" / "keys.pairing.json").stat().st_mode & 0o777 == 0o600
        assert keys.stat().st_mode & 0o777 == 0o600

        serving = ["--no-prompt-log", "--backend", "command", "--", sys.executable, "-c", UPPER]
        async with command(DAEMON, "run", "--keys", str(keys), *serving) as process:
            await eventually(lambda: len(relay.server.relay.daemons) == 1, 30)
            async with Site(relay.address, site_id="shop", keys=SITE_KEYS) as site:
                job = await site.enqueue(GeneratePayload("hello"), owner="alice")
                result = await job.result(20)
            process.terminate()
            await ended(process)
        assert (result.text, result.runner_id) == ("HELLO", runner_id)


@pytest.mark.process
async def test_a_device_without_a_site_is_told_to_pair_again_and_not_to_run(tmp_path: Path) -> None:
    async with real_relay() as relay, pairing(tmp_path, relay) as process:
        await relay.server.pairing.approve(await code_of(process), "nora", "operator")
        done = await ended(process)
    assert done.status == 0
    assert done.stdout[-2:] == [
        "  no site yet: when nora consents to one, run this command again to pin it",
        f"  kept in      {tmp_path / 'device' / 'keys.pairing.json'}",
    ]


@pytest.mark.process
async def test_a_denied_device_ends_with_status_3(tmp_path: Path) -> None:
    async with real_relay() as relay, pairing(tmp_path, relay) as process:
        await relay.server.pairing.deny(await code_of(process), "operator")
        done = await ended(process)
    assert done.status == 3
    assert done.error.startswith("Error: the pairing was denied by whoever runs the relay")
    assert not (tmp_path / "device" / "keys.pairing.json").exists()


@pytest.mark.process
async def test_without_a_relay_it_says_so(tmp_path: Path) -> None:
    keys = str(tmp_path / "keys.json")
    done = await end_of(DAEMON, "pair", "--relay", "127.0.0.1:9", "--keys", keys)
    assert done.status == 1
    assert "check the address, and that the relay is running" in done.error


@pytest.mark.process
async def test_another_machine_takes_a_word_on_tls(tmp_path: Path) -> None:
    done = await end_of(DAEMON, "pair", "--relay", "relay.example:1", "--keys", str(tmp_path / "keys.json"))
    assert done.status == 2
    assert "add --tls" in done.error
    assert not (tmp_path / "keys.json").exists()
