"""The example of a policy as a process, between a real relay and the client library's device and site."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from relay_service.client import Daemon, GeneratePayload, JobContext, OkOutcome, RelayError, Site
from relay_service.core.model import Audience, Capability
from relay_service.projection_file import format_projection
from tests.harness.processes import RunningProcess, running
from tests.relay_service.raw_client import KIND
from tests.relay_service.relay_fixture import PROJECTION, REPOSITORY, keys_of, relay_process

pytestmark = pytest.mark.process

POLICY = [sys.executable, str(REPOSITORY / "examples" / "python" / "policy")]
SERVICES = {
    "runner-1": Capability(KIND, "command", "command", "process", "command", Audience.PRIVATE),
    "runner-b": Capability(KIND, "desk", "llamacpp", "http", "small", Audience.TEAM),
}
SERVED = r"policy is served on (127\.0\.0\.1:\d+)"


@dataclass
class Stage:
    """A relay, its policy, and what the policy goes by."""

    address: str
    policy: RunningProcess
    policy_file: Path
    key: bytes
    folder: Path

    def device(self, name: str, owner: str, answers: list[str]) -> Daemon:
        async def answer(job: JobContext) -> OkOutcome:
            answers.append(job.job_id)
            assert isinstance(job.payload, GeneratePayload)
            return OkOutcome(job.payload.prompt[::-1])

        return Daemon(
            self.address,
            runner_id=name,
            keys=keys_of(name),
            pins=[keys_of("demo").public],
            matrix=[SERVICES[name]],
            handlers={KIND: answer},
            owner=owner,
            spool_dir=self.folder / name,
            control_plane_key=self.key,
        )


async def make_key(folder: Path) -> bytes:
    async with running([*POLICY, "keys", str(folder / "control.json")], cwd=REPOSITORY) as process:
        assert await process.wait() == 0, process.describe()
        (text,) = process.stdout
    await asyncio.to_thread((folder / "control.pub").write_text, text)
    return base64.urlsafe_b64decode(text + "=")


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    key = await make_key(folder)
    policy_file = folder / "policy.json"
    sample = (REPOSITORY / "examples/python/policy/policy.json").read_bytes()
    policy_file.write_bytes(sample)
    projection = folder / "policy-projection.json"
    projection.write_text(format_projection(PROJECTION), "utf-8")
    argv = [*POLICY, "serve", str(policy_file), "--projection", str(projection)]
    argv += ["--keys", str(folder / "control.json"), "--listen", "127.0.0.1:0"]
    async with running(argv, cwd=REPOSITORY, ready=SERVED) as policy:
        assert policy.ready is not None
        flags = ("--policy", policy.ready[1], "--control-plane-key", str(folder / "control.pub"))
        async with relay_process(folder, *flags) as (_, address):
            yield Stage(address, policy, policy_file, key, folder)


@asynccontextmanager
async def serving_devices(*devices: Daemon) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(device.run()) for device in devices]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def ask(site: Site, prompt: str, **options: Any) -> str:
    handle = await site.enqueue(GeneratePayload(prompt), owner="alice", audience="team", **options)
    result = await handle.result()
    assert isinstance(result.outcome, OkOutcome)
    return result.outcome.text


async def test_a_prompt_runs_where_its_person_has_chosen(tmp_path: Path) -> None:
    alices: list[str] = []
    bobs: list[str] = []
    async with stage(tmp_path) as at:
        mine, other = at.device("runner-1", "alice", alices), at.device("runner-b", "bob", bobs)
        async with (
            serving_devices(mine, other),
            Site(at.address, site_id="demo", keys=keys_of("demo")) as site,
        ):
            assert await ask(site, "hello") == "olleh"
            assert (len(alices), len(bobs)) == (1, 0)
            # For this purpose alice has chosen bob's service; his device takes it by the signed grant.
            assert await ask(site, "draft", purpose="writing") == "tfard"
            assert (len(alices), len(bobs)) == (1, 1)
            await at.policy.wait_line("grant .* to runner-b: desk")


async def test_what_nobody_declared_or_chose_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, Site(at.address, site_id="demo", keys=keys_of("demo")) as site:
        with pytest.raises(RelayError) as undeclared:
            await site.enqueue(GeneratePayload("x"), owner="alice", purpose="gossip")
        assert undeclared.value.reason == "PURPOSE_NOT_DECLARED"
        with pytest.raises(RelayError) as unmapped:
            await site.enqueue(GeneratePayload("x"), owner="bob")
        assert (unmapped.value.code, unmapped.value.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "SLOT_UNSATISFIABLE",
        )
        # A change of the file counts with the next question.
        policy = json.loads(at.policy_file.read_bytes())
        policy["sites"]["demo"]["purposes"].append("gossip")
        await asyncio.to_thread(at.policy_file.write_text, json.dumps(policy))
        with pytest.raises(RelayError) as declared:
            await site.enqueue(GeneratePayload("x"), owner="alice", purpose="gossip")
        assert declared.value.reason == "SLOT_UNSATISFIABLE"


# -- the decisions, one by one ----------------------------------------------------------


def policy_of(folder: Path, **parts: Any) -> Any:
    from examples.python.policy.decisions import Policy

    choice = {"owner": "alice", "siteId": "demo", "purpose": "default", "kind": KIND, "service": "desk"}
    policy = {"sites": {"demo": {"purposes": ["default"]}}, "choices": [choice | parts.get("choice", {})]}
    (folder / "policy.json").write_text(json.dumps(policy))
    projection = {
        "sites": [],
        "consents": [{"owner": "alice", "siteId": "demo"} | parts.get("consent", {})],
        "rosters": [{"id": "friends", "owner": "bob", "members": ["alice"]}],
        "revoked": parts.get("revoked", []),
    }
    (folder / "projection.json").write_text(json.dumps(projection))
    return Policy(folder / "policy.json", folder / "projection.json")


ALICE, BOB, CAROL = "alice", "bob", "carol"
AT_BOBS = {"choice": {"deviceOwner": "bob"}}
REVOKED = {"revoked": [{"owner": "alice", "siteId": "demo"}]}


@pytest.mark.parametrize(
    ("parts", "device_owner", "scope", "answer", "permanent"),
    [
        ({}, ALICE, "private", "desk", None),
        (AT_BOBS, BOB, "team", "desk", None),
        ({"consent": {"owner": "carol"}}, ALICE, "team", "not-consented", True),
        (REVOKED, ALICE, "team", "not-consented", True),
        ({"consent": {"paused": True}}, ALICE, "team", "consent-paused", False),
        ({}, CAROL, "team", "not-a-member", True),
        ({"choice": {"purpose": "writing"}}, ALICE, "team", "unmapped", False),
        (AT_BOBS, ALICE, "team", "resolved-elsewhere", False),
        (AT_BOBS, BOB, "private", "resolved-elsewhere", False),
        ({"choice": {"service": "other"}}, ALICE, "team", "resolved-elsewhere", False),
    ],
)
def test_the_order_of_the_decisions(
    tmp_path: Path, parts: Any, device_owner: str, scope: str, answer: str, permanent: bool | None
) -> None:
    from examples.python.policy.decisions import Need, Offer

    policy = policy_of(tmp_path, **parts)
    need = Need("demo", "alice", "default", KIND)
    decided = policy.decide(need, device_owner, [Offer(KIND, "desk", scope)])
    assert decided == answer
    assert getattr(decided, "permanent", None) is permanent


def test_a_need_is_declared_and_chosen(tmp_path: Path) -> None:
    from examples.python.policy.decisions import Need

    policy = policy_of(tmp_path)
    assert policy.check_slot(Need("demo", "alice", "default", KIND)) == "ok"
    assert policy.check_slot(Need("demo", "alice", "gossip", KIND)) == "not-declared"
    assert policy.check_slot(Need("demo", "bob", "default", KIND)) == "unmapped"
    assert policy.check_slot(Need("unknown", "bob", "gossip", KIND)) == "unmapped"
