"""The operator's commands on a real relay, as a person types them."""

import asyncio
import json
import re
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relay_service.client.succession import sign_link
from relay_service.core.projection import Projection
from relay_service.projection_file import format_projection, load_projection
from tests.harness.processes import running
from tests.relay_service.command_runs import run_command
from tests.relay_service.relay_fixture import READY, REPOSITORY, keys_of
from tests.relay_service.store.valkey_fixture import require_valkey
from tests.relay_service.test_relay_is_blind import FORBIDDEN_MODULES, IMPORT

pytestmark = pytest.mark.process

SEARCH = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'protos/gen/python'}"}


@dataclass
class Ended:
    status: int
    stdout: str
    stderr: str


@dataclass
class Operated:
    """A relay process and its operator, in a folder."""

    folder: Path
    address: str
    process: Any

    async def __call__(self, *words: str, key: str = "relay/operator-keys.json", **environment: str) -> Ended:
        """Types a command of relay-service."""
        argv = [sys.executable, "-m", "relay_service", *words, "--relay", self.address]
        surroundings = SEARCH | {"RELAY_OPERATOR_KEY": key, "COLUMNS": "200"} | environment
        async with running(argv, env=surroundings, cwd=self.folder) as command:
            status = await command.wait()
            return Ended(status, "\n".join(command.stdout), "\n".join(command.stderr))

    async def rows(self, *words: str) -> list[dict[str, Any]]:
        ended = await self(*words, "--json")
        assert ended.status == 0, ended
        rows: list[dict[str, Any]] = json.loads(ended.stdout)
        return rows


def identity_file(folder: Path, name: str) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(keys_of(name).public.to_json()))
    return path.name


def fresh(folder: Path) -> None:
    assert run_command("init", folder / "relay").exit_code == 0


@asynccontextmanager
async def serve(folder: Path, *flags: str) -> AsyncIterator[Operated]:
    argv = [sys.executable, "-X", "importtime", "-m", "relay_service", "serve", "--dev"]
    argv += ["--listen", "127.0.0.1:0", "--log-format", "json", "--projection", "relay/projection.json"]
    argv += ["--operator-identity", "relay/operator.json", *flags]
    # The operator's variable is set in the shell that starts the relay, too.
    environment = SEARCH | {"RELAY_OPERATOR_KEY": "relay/operator-keys.json"}
    async with running(argv, env=environment, cwd=folder, ready=READY, ready_timeout=40) as process:
        assert process.ready is not None
        yield Operated(folder, process.ready[1], process)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[Operated]:
    fresh(tmp_path)
    for name in ("site", "laptop", "site-2"):
        identity_file(tmp_path, name)
    async with serve(tmp_path) as operated:
        yield operated


# -- before there is a relay ------------------------------------------------------------


def test_init_makes_everything_and_says_what_comes_next(tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    result = run_command("init", folder)
    assert result.exit_code == 0
    assert load_projection(folder / "projection.json") == Projection(revision=1)
    assert stat.S_IMODE((folder / "operator-keys.json").stat().st_mode) == 0o600
    assert sorted(json.loads((folder / "operator.json").read_text())) == [
        "encryption",
        "encryptionSig",
        "identity",
    ]
    assert f"relay-service serve --dev --projection {folder}/projection.json" in result.stdout
    assert f"export RELAY_OPERATOR_KEY={folder}/operator-keys.json" in result.stdout
    again = run_command("init", folder)
    assert again.exit_code == 1
    assert (
        again.stderr == f"Error: {folder}/projection.json: is there already; nothing was made or replaced\n"
    )


def test_keys_makes_a_private_and_a_public_file(tmp_path: Path) -> None:
    private = tmp_path / "erin-keys.json"
    made = run_command("keys", private)
    assert made.exit_code == 0
    assert re.search(r"key id BYOLLM-", made.stdout)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "identityPrivate" not in (tmp_path / "erin.json").read_text()
    before = private.read_bytes()
    assert run_command("keys", private).exit_code == 1
    assert private.read_bytes() == before


def test_without_a_key_the_message_says_how_to_make_one(tmp_path: Path) -> None:
    result = run_command("sites", "list", "--operator-key", tmp_path / "none.json")
    assert result.exit_code == 1
    assert (
        result.stderr
        == f"Error: {tmp_path}/none.json: there are no keys; make them with: relay-service init FOLDER; "
        "or say where they are: export RELAY_OPERATOR_KEY=FOLDER/operator-keys.json\n"
    )


def test_another_machine_needs_tls(tmp_path: Path) -> None:
    result = run_command("sites", "list", "--relay", "relay.example.org:7433")
    assert result.exit_code == 2
    assert "add --tls" in result.stderr


# -- with a relay -----------------------------------------------------------------------


async def test_an_operator_decides_and_sees_what_is_decided(relay: Operated) -> None:
    key_id = keys_of("site").key_id
    added = await relay("sites", "add", "demo", "--identity", "site.json")
    assert (added.status, added.stdout) == (
        0,
        f"revision 2: site demo added with key {key_id}\nkey id {key_id}",
    )
    again = await relay("sites", "add", "demo", "--identity", "site.json")
    assert again.stdout.startswith("revision 2: nothing to change: ")
    public = keys_of("other").public.to_json()
    three = [public[name] for name in ("identity", "encryption", "encryptionSig")]
    assert (await relay("sites", "add", "other", "--public-keys", *three)).status == 0
    assert [row["siteId"] for row in await relay.rows("sites", "list")] == ["demo", "other"]
    assert (await relay("sites", "remove", "other")).stdout == "revision 4: site other removed"

    pair = ("--owner", "alice", "--site", "demo")
    for verb, summary in (
        ("grant", "revision 5: alice consents to demo"),
        ("pause", "revision 6: consent of alice to demo paused"),
        ("resume", "revision 7: consent of alice to demo resumed"),
        ("revoke", "revision 8: consent of alice to demo revoked"),
    ):
        assert (await relay("consents", verb, *pair)).stdout == summary
    assert await relay.rows("consents", "list") == [{"owner": "alice", "siteId": "demo", "state": "revoked"}]

    team = ("team", "--owner", "alice")
    shared = await relay("rosters", "add", *team, "--member", "bob", "--member", "carol")
    assert shared.stderr == (
        "alice can read the prompts and answers of what alice's devices do for bob, carol"
    )
    await relay("rosters", "remove", *team, "--member", "bob")
    assert await relay.rows("rosters", "list") == [{"id": "team", "owner": "alice", "members": ["carol"]}]
    assert (await relay("rosters", "remove", *team)).stdout.endswith("roster team of alice removed")

    await relay("devices", "add", "laptop", "--owner", "alice", "--identity", "laptop.json")
    assert (await relay("devices", "revoke", "laptop")).stdout.endswith("device laptop of alice revoked")
    (device,) = await relay.rows("devices", "list")
    assert (device["runnerId"], device["owner"], device["revoked"]) == ("laptop", "alice", True)
    assert device["keyId"] == keys_of("laptop").key_id
    table = (await relay("devices", "list")).stdout
    assert "laptop" in table
    assert "revoked" in table


async def test_a_site_moves_to_a_new_key(relay: Operated) -> None:
    link = sign_link(keys_of("site"), keys_of("site-2").key_id)
    await asyncio.to_thread((relay.folder / "link.json").write_text, json.dumps(link.to_json()))
    await relay("sites", "add", "demo", "--identity", "site.json")
    words = (
        "sites",
        "rotate",
        "demo",
        "--identity",
        "site-2.json",
        "--succession",
        "link.json",
        "--keep-old",
        "1h",
    )
    moved = await relay(*words)
    assert (moved.status, moved.stdout.splitlines()[-1]) == (0, f"key id {keys_of('site-2').key_id}")
    (site,) = (await asyncio.to_thread(load_projection, relay.folder / "relay/projection.json")).sites
    assert site.identity == keys_of("site-2").public
    assert [link.identity for link in site.succeeds] == [keys_of("site").public]
    assert site.retiring_until_ms is not None


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (
            ("consents", "grant", "--owner", "alice", "--site", "demi"),
            1,
            "Error: no site has the id demi (registered: none yet); add it first",
        ),
        (("devices", "revoke", "none"), 1, "Error: no device has the runner id none"),
        (
            ("approve", "1234-5678", "--owner", "alice"),
            1,
            (
                "Error: no pairing with this code waits; a code lives for 10 minutes: list the pairings, or "
                "start again"
            ),
        ),
        (
            ("sites", "add", "demo"),
            2,
            "Error: give the site's public identity: --identity FILE, or --public-keys",
        ),
        (
            ("sites", "list", "--operator-name", "erin"),
            1,
            (
                'Error: the relay does not know this key as that of "erin": start it with '
                "--operator-identity and the public half that was made with the key"
            ),
        ),
    ],
)
async def test_what_is_refused_is_one_line_and_a_status(
    relay: Operated, words: tuple[str, ...], status: int, text: str
) -> None:
    ended = await relay(*words)
    assert ended.status == status
    assert ended.stderr.splitlines()[-1] == text


async def test_several_operators_have_names(tmp_path: Path) -> None:
    fresh(tmp_path)
    for name in ("olga", "erin"):
        run_command("keys", tmp_path / "operators" / f"{name}-keys.json")
        (tmp_path / "operators" / f"{name}-keys.json").rename(tmp_path / f"{name}-keys.json")
    identity_file(tmp_path, "site")
    async with serve(tmp_path, "--operator-identity", "operators") as relay:
        ended = await relay(
            "sites", "add", "demo", "--identity", "site.json", "--operator-name", "erin", key="erin-keys.json"
        )
        assert ended.status == 0, ended
        assert (await relay("sites", "list", "--operator-name", "erin", key="olga-keys.json")).status == 1
        assert (await relay("sites", "list")).status == 1
    trail = await asyncio.to_thread((tmp_path / "relay/projection.json.audit.jsonl").read_text)
    assert [json.loads(line)["actor"] for line in trail.splitlines()] == ["file", "erin"]


async def test_what_was_decided_is_there_after_a_restart(tmp_path: Path) -> None:
    fresh(tmp_path)
    identity_file(tmp_path, "site")
    async with serve(tmp_path) as relay:
        await relay("sites", "add", "demo", "--identity", "site.json")
        relay.process.kill()
        await relay.process.wait()
    async with serve(tmp_path) as relay:
        assert [row["siteId"] for row in await relay.rows("sites", "list")] == ["demo"]
        assert (await relay("sites", "remove", "demo")).stdout == "revision 3: site demo removed"


async def test_a_relay_that_serves_operators_loads_no_code_that_could_sign(relay: Operated) -> None:
    await relay("sites", "add", "demo", "--identity", "site.json")
    await relay.rows("pairings", "list")
    relay.process.terminate()
    assert await relay.process.wait() == 0
    loaded = {match[1] for line in relay.process.stderr if (match := IMPORT.match(line))}
    assert {"relay_service.planes.control_plane", "relay_service.projection_keeper"} <= loaded
    assert [name for name in loaded if name.startswith(FORBIDDEN_MODULES)] == []


async def test_a_relay_without_a_file_says_that_it_forgets(tmp_path: Path) -> None:
    fresh(tmp_path)
    identity_file(tmp_path, "site")
    argv = [
        sys.executable,
        "-m",
        "relay_service",
        "serve",
        "--dev",
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
    ]
    argv += ["--operator-identity", "relay/operator.json"]
    async with running(argv, env=SEARCH, cwd=tmp_path, ready=READY, ready_timeout=40) as process:
        assert process.ready is not None
        relay = Operated(tmp_path, process.ready[1], process)
        added = await relay("sites", "add", "demo", "--identity", "site.json")
    assert "this relay keeps it in its memory alone, so a restart forgets it" in added.stdout


async def test_a_store_that_lasts_keeps_what_was_decided_without_a_file(tmp_path: Path) -> None:
    require_valkey()
    fresh(tmp_path)
    identity_file(tmp_path, "site")
    argv = [sys.executable, "-m", "relay_service", "serve", "--listen", "127.0.0.1:0", "--log-format", "json"]
    argv += ["--operator-identity", "relay/operator.json", "--store", f"embedded:{tmp_path}/store"]
    for revision in (1, 2):
        async with running(argv, env=SEARCH, cwd=tmp_path, ready=READY, ready_timeout=60) as process:
            assert process.ready is not None
            relay = Operated(tmp_path, process.ready[1], process)
            if revision == 1:
                added = await relay("sites", "add", "demo", "--identity", "site.json")
                assert added.stdout.startswith("revision 1: site demo added")
                assert "forgets" not in added.stdout
            else:
                granted = await relay("consents", "grant", "--owner", "alice", "--site", "demo")
                assert granted.stdout == "revision 2: alice consents to demo"
            process.terminate()
            assert await process.wait() == 0


async def test_a_hand_edit_that_is_broken_is_named_and_keeps_operators_out(relay: Operated) -> None:
    path = relay.folder / "relay/projection.json"
    broken = format_projection(Projection(revision=1)).replace("[]", "{}", 1)
    await asyncio.to_thread(path.write_text, broken)
    line = await relay.process.wait_line("projection_broken")
    assert "projection.json:3: sites: must be a list, not an object" in line.string
    ended = await relay("sites", "add", "demo", "--identity", "site.json")
    assert (ended.status, ended.stderr) == (
        1,
        (
            "Error: the projection file on the relay's machine is gone or holds an edit that is broken; mend "
            "it first, relay-service projection check shows where"
        ),
    )
