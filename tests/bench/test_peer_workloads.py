from itertools import islice
from pathlib import Path
from random import Random

import pytest

from bench.peer_relay.cancels import waits
from bench.peer_relay.installation import Installer, ensure_installed, node_version
from bench.peer_relay.legs import Legs
from bench.peer_relay.party import Party, new_party
from bench.peer_relay.server import fixture
from bench.prompts import answer_to, new_prompt
from bench.variant import VariantUnavailableError
from relay_service.client.keys import Keys

LADDER = [(0.2, 0.5), (1.2, 1.5), (2.2, 2.5), (4.2, 4.5), (6.2, 6.5), (8.2, 8.5)]
CEILING = (8.5, 11.5)


@pytest.mark.parametrize("seed", range(20))
def test_a_device_asks_again_at_the_published_client_s_pace(seed: int) -> None:
    drawn = list(islice(waits(Random(seed)), 30))
    for wait, (least, most) in zip(drawn, LADDER + [CEILING] * 24, strict=True):
        assert least <= wait <= most


@pytest.mark.parametrize("size", [1, 100, 1024, 65536])
def test_prompts_have_their_size_and_no_two_are_alike(size: int) -> None:
    random = Random(1)
    first, second = new_prompt(size, random), new_prompt(size, random)
    assert len(first) == len(second) == size
    assert first.isascii()
    assert size == 1 or first != second


def test_the_answer_is_as_long_as_the_prompt_and_is_not_the_prompt() -> None:
    assert answer_to("abc") == "cba"


def test_a_job_s_two_legs() -> None:
    site, device = new_party("site", Random(1)), new_party("device", Random(2))
    legs = Legs(site, device)
    payload = legs.payload("job-1", "abc", device.keys.public.to_json())
    assert payload["direction"] == "payload"
    result = {"disposition": "ok", "envelope": legs.answer("job-1", payload)}
    assert legs.is_right("job-1", "abc", result)
    assert not legs.is_right("job-1", "abd", result)
    assert not legs.is_right("job-2", "abc", result)
    assert not legs.is_right("job-1", "abc", {**result, "disposition": "error"})
    forged = {"disposition": "ok", "envelope": Legs(site, new_party("other", Random(3))).outcome("job-1", {})}
    assert not legs.is_right("job-1", "abc", forged)


def test_request_signatures_are_those_of_the_published_relay() -> None:
    device = Party("runner_1", Keys(b"\x03" * 32, b"\x04" * 32, 1))
    body = b'{"protocolVersion":"2","runnerId":"runner_1","capabilities":[],"max":1}'
    assert device.request_signature("claim", 1767225600000, body) == (
        "mpMHcAOv7hy4Xr73ogGgKML8Itzaxl6ZuprXLnjHpCI8cMxXyiGeRmjacb6H6olUhvLnvH81bAKJO0lZVnH0DA"
    )
    site = Party("site_demo", Keys(b"\x01" * 32, b"\x02" * 32, 1))
    assert site.request_signature("site/pending", 1767225600000, b"") == (
        "FR4XG67aGRMTxi7b7U3xpbfx1C4gORCfJc7F4JaW_zmkrBgWyV8z93K_0JWmBQiSfVRxzR5uiDyJ47c5kY4fAQ"
    )


def test_the_fixture_has_a_consent_for_every_device_s_owner() -> None:
    site, device = new_party("site", Random(1)), new_party("runner", Random(2))
    projection = fixture([site], [("alice", "site", device)])
    assert projection["consents"] == [{"owner": "alice", "siteId": "site"}]
    assert [entry["siteId"] for entry in projection["sites"]] == ["site"]
    (entry,) = projection["devices"]
    assert (entry["owner"], entry["runnerId"]) == ("alice", "runner")
    assert set(entry["device"]) == {"identity", "encryption", "encryptionSig"}


@pytest.mark.parametrize(("text", "version"), [("v22.23.3\n", (22, 23)), ("v20.9.0", (20, 9))])
def test_node_versions(text: str, version: tuple[int, int]) -> None:
    assert node_version(text) == version


def sources(folder: Path) -> Path:
    for name in ("package.json", "package-lock.json", "server.mjs"):
        (folder / name).write_text('{"dependencies": {"some-relay": "0.1.1"}}', encoding="utf-8")
    return folder


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


async def test_without_npm_the_peer_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VariantUnavailableError, match="npm is not on the PATH"):
        await ensure_installed(tmp_path / "peer", sources(tmp_path))


async def test_a_failed_installation_says_what_npm_said_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "npm", "echo 'npm error network unreachable' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for _attempt in range(2):
        with pytest.raises(VariantUnavailableError, match="network unreachable"):
            await ensure_installed(tmp_path / "peer", sources(tmp_path))


async def test_an_installation_is_made_once_for_the_same_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "peer" / "node_modules" / "node" / "bin" / "node"
    program(tmp_path / "node-to-install", "echo v22.23.3")
    program(
        tmp_path / "bin" / "npm",
        f"cd {tmp_path}; echo run >> runs; mkdir -p {installed.parent}; cp node-to-install {installed}",
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    source = sources(tmp_path)
    for _attempt in range(2):
        found = await ensure_installed(tmp_path / "peer", source)
        assert found.node == installed
        assert found.version == "some-relay 0.1.1, Node v22.23.3"
        assert found.script.is_file()
    assert (tmp_path / "runs").read_text(encoding="utf-8").split() == ["run"]
    (source / "package.json").write_text('{"changed": true}', encoding="utf-8")
    await ensure_installed(tmp_path / "peer", source)
    assert (tmp_path / "runs").read_text(encoding="utf-8").split() == ["run", "run"]


async def test_a_failure_is_remembered_for_the_rest_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "npm", f"echo run >> {tmp_path}/runs; echo 'npm error offline' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    installer = Installer(tmp_path / "peer", sources(tmp_path))
    assert "npm error offline" in await installer.prepare()
    for _attempt in range(2):
        with pytest.raises(VariantUnavailableError, match="npm error offline"):
            await installer.installation()
    assert (tmp_path / "runs").read_text(encoding="utf-8").split() == ["run"]


async def test_a_node_that_is_too_old_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin" / "npm", "exit 0")
    program(tmp_path / "bin" / "node", "echo v20.20.2")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(VariantUnavailableError, match=r"needs Node 22\.14 or later"):
        await ensure_installed(tmp_path / "peer", sources(tmp_path))
