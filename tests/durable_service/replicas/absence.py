"""What callers see of a database that is away for a while."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from sealwork.durable.v1 import lease_pb2
from tests.durable_service.raw_client import Party, Refusal
from tests.harness.waiting import eventually

# Longer than any absence, on a busy machine too.
LEASE_MS = 120_000


async def claimed(party: Party) -> lease_pb2.LeaseRef:
    answer = await party.call("ClaimTask", task_id="task", claim_id="claim", worker_id="worker-1")
    return lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=answer.claimed.lease.fence)


async def answered(call: Callable[[], Awaitable[Any]]) -> Any:
    """The answer, once the database is back; until then the refusal has to be that it is away."""

    async def answer() -> Any:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if Refusal.of_error(error).reason != "STORE_UNAVAILABLE":
                raise
            return None

    return await eventually(answer, 60, "the database to be back")


async def refused(party: Party) -> None:
    """The service says that the database is away, and when to ask again; not where it is."""
    refusal = await party.refused("GetTask", task_id="task")
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert refusal.retry_after_ms is not None
    assert "127.0.0.1" not in refusal.message
