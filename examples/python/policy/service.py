"""The decisions behind the wire: `PolicyService`, with grants signed by the control plane's key."""

import asyncio
import signal
import time
from collections import OrderedDict
from typing import Any
from uuid import uuid4

import grpc.aio

from examples.python.policy.decisions import Need, No, Offer, Policy, Slot
from relay_service.client.grants import Grant, sign_grant
from sealwork.relay.v1 import job_pb2, policy_pb2, policy_pb2_grpc
from service_common.signing import Signer

VERDICTS = {
    Slot.OK: policy_pb2.SLOT_VERDICT_OK,
    Slot.NOT_DECLARED: policy_pb2.SLOT_VERDICT_NOT_DECLARED,
    Slot.UNMAPPED: policy_pb2.SLOT_VERDICT_UNMAPPED,
}
SCOPES = {job_pb2.AUDIENCE_PRIVATE: "private", job_pb2.AUDIENCE_TEAM: "team"}
DEFAULT_PURPOSE = "default"
REMEMBERED = 10_000


class PolicyServicer(policy_pb2_grpc.PolicyServiceServicer):
    """Decides and signs. Prints one line for each decision: who, what, and why not."""

    def __init__(self, policy: Policy, signer: Signer) -> None:
        self._policy = policy
        self._signer = signer
        # A question that is repeated gets the same grant: the relay asks once more when an answer is lost.
        self._grants: OrderedDict[str, job_pb2.SignedGrant] = OrderedDict()

    # Names and parameters are those of the proto file.
    async def CheckSlot(  # noqa: N802
        self,
        request: Any,
        context: Any,  # noqa: ARG002
    ) -> policy_pb2.CheckSlotResponse:
        # Files that cannot be read raise, the call fails, and the relay tells its caller to try again.
        self._policy.refresh()
        need = Need(request.site_id, request.owner, request.purpose, request.kind)
        verdict = self._policy.check_slot(need)
        print(f"slot {need.owner} at {need.site_id}, {need.purpose}: {verdict}", flush=True)
        return policy_pb2.CheckSlotResponse(verdict=VERDICTS[verdict])

    async def AuthorGrant(  # noqa: N802
        self,
        request: Any,
        context: Any,  # noqa: ARG002
    ) -> policy_pb2.AuthorGrantResponse:
        self._policy.refresh()
        stub = request.stub
        need = Need(request.site_id, stub.owner, stub.purpose or DEFAULT_PURPOSE, stub.kind)
        offers = [Offer(row.kind, row.service, SCOPES.get(row.offer_scope, "")) for row in request.matrix]
        answer = self._policy.decide(need, request.device_owner, offers)
        print(f"grant {stub.id} to {request.runner_id}: {answer}", flush=True)
        if isinstance(answer, No):
            declined = policy_pb2.GrantDeclined(permanent=answer.permanent)
            return policy_pb2.AuthorGrantResponse(declined=declined)
        return policy_pb2.AuthorGrantResponse(grant=self._sign(request, need, answer))

    def _sign(self, request: Any, need: Need, service: str) -> job_pb2.SignedGrant:
        known = self._grants.get(request.lease_id)
        if known is not None:
            return known
        grant = Grant(
            grant_id=f"grant_{uuid4()}",
            job_id=request.stub.id,
            site=request.stub.site,
            user=need.owner,
            owner=request.device_owner,
            purpose=need.purpose,
            kind=need.kind,
            service=service,
            issued_at_ms=time.time_ns() // 1_000_000,
        )
        signed = sign_grant(grant, self._signer)
        self._grants[request.lease_id] = signed
        if len(self._grants) > REMEMBERED:
            self._grants.popitem(last=False)
        return signed


async def serve(policy: Policy, signer: Signer, address: str) -> None:
    """Serves until SIGTERM or Ctrl-C."""
    server = grpc.aio.server()
    policy_pb2_grpc.add_PolicyServiceServicer_to_server(PolicyServicer(policy, signer), server)
    port = server.add_insecure_port(address)
    await server.start()
    print(f"policy is served on {address.rpartition(':')[0]}:{port}", flush=True)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    await ending.wait()
    await server.stop(1)
