"""An operator's policy over a real socket that answers as a test says, and a relay that asks it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from relay_service.planes.policy_client import PolicyClient
from sealwork.relay.v1 import job_pb2, policy_pb2, policy_pb2_grpc
from tests.harness.waiting import eventually
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, serving

OK = policy_pb2.SLOT_VERDICT_OK

Answer = policy_pb2.AuthorGrantResponse


def grant_for(request: policy_pb2.AuthorGrantRequest) -> job_pb2.SignedGrant:
    """A grant for what was asked; nobody here checks its signature."""
    return job_pb2.SignedGrant(
        grant_id=f"grant-{request.lease_id}",
        job_id=request.stub.id,
        site=request.stub.site,
        user=request.stub.owner,
        owner=request.device_owner,
        purpose=request.stub.purpose or "default",
        kind=request.stub.kind,
        service="local",
        issue_time=Timestamp(seconds=START_MS // 1000),
        signature=b"s" * 64,
    )


def agree(request: policy_pb2.AuthorGrantRequest) -> Answer:
    return Answer(grant=grant_for(request))


def never(_: policy_pb2.AuthorGrantRequest) -> Answer:
    return Answer(declined=policy_pb2.GrantDeclined(permanent=True))


def not_now(_: policy_pb2.AuthorGrantRequest) -> Answer:
    return Answer(declined=policy_pb2.GrantDeclined(permanent=False))


@dataclass
class ScriptedPolicy(policy_pb2_grpc.PolicyServiceServicer):
    """Answers every question with what it is set to.

    Attributes:
        slots: what was asked about needs.
        grants: what was asked about grants.
        failing: statuses that the next questions are answered with.
        gate: questions about grants are answered while it is set.
    """

    verdict: Any = OK
    decide: Callable[[policy_pb2.AuthorGrantRequest], Answer] = agree
    slots: list[policy_pb2.CheckSlotRequest] = field(default_factory=list)
    grants: list[policy_pb2.AuthorGrantRequest] = field(default_factory=list)
    failing: deque[grpc.StatusCode] = field(default_factory=deque)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    address: str = ""
    _server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serves, at the address of before when there is one."""
        self.gate.set()
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        policy_pb2_grpc.add_PolicyServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(self.address or "127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def asked(self, count: int = 1) -> None:
        """Waits until so many questions about grants have come."""
        await eventually(lambda: len(self.grants) >= count, describe=lambda: f"{self.grants}")

    async def CheckSlot(self, request: Any, context: Any) -> policy_pb2.CheckSlotResponse:
        self.slots.append(request)
        await self._fail(context)
        return policy_pb2.CheckSlotResponse(verdict=self.verdict)

    async def AuthorGrant(self, request: Any, context: Any) -> Answer:
        self.grants.append(request)
        await self._fail(context)
        await self.gate.wait()
        return self.decide(request)

    async def _fail(self, context: Any) -> None:
        if self.failing:
            await context.abort(self.failing.popleft(), "a secret of the operator's")


@dataclass
class PolicyRelay:
    """A relay in this process that asks a scripted policy."""

    relay: RelayUnderTest
    policy: ScriptedPolicy
    client: PolicyClient

    async def start_policy(self) -> None:
        """Serves the policy again; returns when the relay is connected to it."""
        await self.policy.start()
        assert await self.client.reconnect(15)


@asynccontextmanager
async def policy_relay(**options: Any) -> AsyncIterator[PolicyRelay]:
    policy = ScriptedPolicy()
    await policy.start()
    client = PolicyClient(policy.address)
    try:
        async with serving(policy=client, **options) as relay:
            yield PolicyRelay(relay, policy, client)
    finally:
        policy.gate.set()
        await client.close()
        await policy.stop()
