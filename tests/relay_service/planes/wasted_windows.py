"""A site that lets its sealing windows lapse, and what an operator reads of it."""

from typing import Any

from relay_service.core.model import JobStub, Route
from relay_service.planes.convert import stub_from_proto
from relay_service.store.base import ClaimRequest
from sealwork.relay.v1 import admin_pb2
from tests.relay_service.raw_client import KIND, RawOperator
from tests.relay_service.relay_fixture import RelayUnderTest, keys_of

HOSTS = {"alice": "runner-2", "bob": "runner-b"}


async def waste_windows(relay: RelayUnderTest, owner: str, store: Any = None) -> None:
    """Six windows of one person's jobs lapse: the sixth is reported.

    Args:
        store: which store claims and lets time pass; else the relay's own.
    """
    store = store or relay.store
    runner = HOSTS[owner]
    request = ClaimRequest(
        runner_id=runner,
        owner=owner,
        device=keys_of(runner).public,
        routes=frozenset({Route("demo", owner)}),
        kinds=frozenset({KIND}),
        maximum=1,
        lease_ms=60_000,
    )
    for number in range(6):
        await store.enqueue("demo", stub(relay, f"{owner}-{number}", owner))
        (granted,) = await store.claim(request)
        await relay.clock.advance_async(10_000)
        await store.sweep()
        await store.cancel("demo", granted.stub.id)


def stub(relay: RelayUnderTest, job_id: str, owner: str) -> JobStub:
    return stub_from_proto(relay.stub(job_id, owner=owner))


async def reports(operator: RawOperator) -> list[Any]:
    answer = await operator.call("ListChurnReports", admin_pb2.ListChurnReportsRequest())
    return list(answer.reports)
