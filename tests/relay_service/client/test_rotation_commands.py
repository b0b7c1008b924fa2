"""The keys of a site change hands by the commands that people type, and the device follows."""

import asyncio
import json
from pathlib import Path

import pytest

from relay_service.client import Daemon
from relay_service.client.keys import Keys
from tests.harness.waiting import eventually
from tests.relay_service.client.commands import SITE, end_of, key_file, site
from tests.relay_service.client.real_relay import DEVICE_KEYS, GENERATE, SITE_KEYS
from tests.relay_service.client.test_site_relay import echo
from tests.relay_service.command_runs import run_command
from tests.relay_service.test_operator_commands import fresh, serve


def save(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.process
async def test_a_site_gets_new_keys_while_a_device_is_connected(tmp_path: Path) -> None:
    fresh(tmp_path)
    projection = tmp_path / "relay/projection.json"
    device_file = save(tmp_path / "device.json", json.dumps(DEVICE_KEYS.public.to_json()))
    words = ("--runner-id", "desk", "--owner", "alice", "--identity", device_file)
    assert run_command("projection", "add-device", projection, *words).exit_code == 0
    old = key_file(tmp_path, SITE_KEYS, "site-keys.json")

    async with serve(tmp_path) as relay:
        first = save(tmp_path / "site.json", site("identity", "--keys", old).stdout)
        assert (await relay("sites", "add", "demo", "--identity", first)).status == 0
        assert (await relay("consents", "grant", "--owner", "alice", "--site", "demo")).status == 0
        daemon = Daemon(
            relay.address,
            runner_id="desk",
            keys=DEVICE_KEYS,
            pins=[SITE_KEYS.public],
            matrix=[GENERATE],
            handlers={"llm.generate": echo},
            owner="alice",
        )
        running = asyncio.ensure_future(daemon.run())
        await asyncio.wait_for(daemon.opened(), 20)

        link = save(tmp_path / "succession.json", site("rotate", "--keys", old).stdout)
        new = str(tmp_path / "next-site-keys.json")
        second = save(tmp_path / "new-site.json", site("identity", "--keys", new).stdout)
        moved = await relay("sites", "rotate", "demo", "--identity", second, "--succession", link)
        assert moved.status == 0, moved
        await eventually(lambda: daemon._pins.get(Keys.load(new).key_id), 5)

        for keys in (("--keys", new, "--earlier-keys", old), ("--keys", old)):
            asked = await end_of(SITE, "ask", "hi", "--owner", "alice", "--relay", relay.address, *keys)
            assert (asked.status, asked.stdout) == (0, ["echo: hi"]), asked
        await daemon.stop()
        await running
