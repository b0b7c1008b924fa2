"""From the operator's policy to the device: a real relay carries a grant, and a real device goes by it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relay_service.client import Connection, Daemon, GeneratePayload, JobContext, OkOutcome
from relay_service.client.grants import Grant, sign_grant
from relay_service.client.outcomes import Outcome
from relay_service.core.projection import Consent, ProjectedDevice, ProjectedSite, Projection, Roster
from relay_service.planes.policy_client import PolicyClient
from sealwork.relay.v1 import policy_pb2
from service_common.clocks import SystemClock
from service_common.signing import Signer
from tests.harness.waiting import eventually
from tests.relay_service.client.daemon_words import TEAM
from tests.relay_service.client.granting import CONTROL
from tests.relay_service.client.real_relay import OTHER_DEVICE_KEYS, SITE_KEYS, RealRelay, real_relay
from tests.relay_service.client.test_daemon_polling import SplitConnection, proxied
from tests.relay_service.client.test_site_relay import shop
from tests.relay_service.policy.scripted_policy import ScriptedPolicy

# Bob's device does alice's work: she is on his roster.
PROJECTION = Projection(
    sites=(ProjectedSite("shop", SITE_KEYS.public),),
    consents=(Consent("alice", "shop"), Consent("bob", "shop")),
    devices=(ProjectedDevice("bob", "lap", OTHER_DEVICE_KEYS.public),),
    rosters=(Roster("friends", "bob", ("alice",)),),
)
LARGE = replace(TEAM, service="other", model="large")


def author(signer: Signer = CONTROL, **changes: Any) -> Callable[[Any], policy_pb2.AuthorGrantResponse]:
    """A control plane that grants every job the service `other`, but for these changes."""

    def decide(request: policy_pb2.AuthorGrantRequest) -> policy_pb2.AuthorGrantResponse:
        grant = Grant(
            grant_id=f"grant of {request.lease_id}",
            job_id=request.stub.id,
            site=request.stub.site,
            user=request.stub.owner,
            owner=request.device_owner,
            purpose=request.stub.purpose if request.stub.HasField("purpose") else "default",
            kind=request.stub.kind,
            service="other",
            issued_at_ms=SystemClock().now_ms(),
        )
        return policy_pb2.AuthorGrantResponse(grant=sign_grant(replace(grant, **changes), signer))

    return decide


@dataclass
class Granting:
    relay: RealRelay
    policy: ScriptedPolicy


@asynccontextmanager
async def granting() -> AsyncIterator[Granting]:
    policy = ScriptedPolicy(decide=author())
    await policy.start()
    client = PolicyClient(policy.address)
    try:
        async with real_relay(policy=client) as relay:
            relay.source.replace(PROJECTION)
            yield Granting(relay, policy)
    finally:
        await client.close()
        await policy.stop()


@asynccontextmanager
async def bobs_device(
    address: str | Connection, folder: Path, ran: list[JobContext]
) -> AsyncIterator[Daemon]:
    async def answer(context: JobContext) -> Outcome:
        ran.append(context)
        return OkOutcome(f"by {context.capability.model}")

    daemon = Daemon(
        address,
        runner_id="lap",
        keys=OTHER_DEVICE_KEYS,
        pins=[],
        matrix=[TEAM, LARGE],
        handlers={"llm.generate": answer},
        owner="bob",
        control_plane_key=CONTROL.public_key,
        spool_dir=folder / "spool",
    )
    running = asyncio.ensure_future(daemon.run())
    try:
        yield daemon
    finally:
        await daemon.stop(grace_seconds=1)
        await running


async def test_a_friends_job_runs_by_the_service_that_the_control_plane_names(tmp_path: Path) -> None:
    ran: list[JobContext] = []
    async with (
        granting() as there,
        bobs_device(there.relay.address, tmp_path, ran) as daemon,
        shop(there.relay) as site,
    ):
        await daemon.opened()
        jobs = [
            await site.enqueue(GeneratePayload("x"), owner=owner, purpose=purpose)
            for owner, purpose in (("alice", None), ("alice", "writing"), ("bob", None))
        ]
        results = [await job.result(10) for job in jobs]

    assert [result.text for result in results] == ["by large"] * 3
    assert {(context.owner, context.own) for context in ran} == {("alice", False), ("bob", True)}


async def test_a_grant_that_the_device_does_not_believe_costs_it_the_job(tmp_path: Path) -> None:
    ran: list[JobContext] = []
    async with granting() as there, bobs_device(there.relay.address, tmp_path, ran) as daemon:
        await daemon.opened()
        async with shop(there.relay) as site:
            there.policy.decide = author(Signer(b"\x06" * 32))
            forged = await site.enqueue(GeneratePayload("x"), owner="alice")
            await eventually(lambda: forged.requeues == 1)
            there.policy.decide = author()
            honest = await site.enqueue(GeneratePayload("y"), owner="alice")

            # Refused is for ever: the device is not offered it again, though it would get a good grant now.
            assert (await honest.result(10)).text == "by large"
            assert not forged.done
            assert len(there.policy.grants) == 2
    assert [context.job_id for context in ran] == [honest.id]


async def test_grants_come_by_calls_as_well(tmp_path: Path) -> None:
    ran: list[JobContext] = []
    async with granting() as there, proxied(there.relay) as proxy:
        proxy.cut(refuse=True)
        connection = SplitConnection(there.relay.address, session_address=proxy.address)
        async with bobs_device(connection, tmp_path, ran) as daemon, shop(there.relay) as site:
            job = await site.enqueue(GeneratePayload("x"), owner="alice")

            assert (await job.result(30)).text == "by large"
            assert not daemon.connected
