"""A claim that is asked again while it is still being answered."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from durable_service.planes.claims_under_way import ClaimsUnderWay
from tests.durable_service.durable_fixture import MAIL, DurableUnderTest

CLAIM: dict[str, Any] = {"drivers": [MAIL], "worker_id": "worker-1", "claim_id": "once"}
WAITING = CLAIM | {"wait": Duration(seconds=10)}
ELSEWHERE = {"task_id": "no-task", "worker_id": "worker-1", "claim_id": "once"}


async def test_a_repeat_ends_the_call_before_it_and_gets_the_task(service: DurableUnderTest) -> None:
    # Which of the two comes first is not known: the one that comes second goes on waiting.
    calls = {asyncio.ensure_future(service.call("worker", "ClaimNext", **WAITING)) for _ in (1, 2)}
    done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert [each.result().HasField("claimed") for each in done] == [False]
    await service.create("first")
    await service.create("second")
    assert [(await each).claimed.task.task_id for each in waiting] == ["first"]
    assert (await service.task("second")).fence == 0


async def test_what_a_call_that_was_given_up_commits_is_known_to_its_repeat(
    service: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.create("first")
    await service.create("second")
    begun, go, update = asyncio.Event(), asyncio.Event(), service.store.update

    async def slow(*arguments: Any) -> Any:
        begun.set()
        await go.wait()
        return await update(*arguments)

    monkeypatch.setattr(service.store, "update", slow)
    first = asyncio.ensure_future(service.call("worker", "ClaimNext", **CLAIM))
    await begun.wait()
    first.cancel()
    asking = asyncio.ensure_future(service.party("worker").refused("ClaimTask", **ELSEWHERE))
    # It neither claims nor says that nothing was granted while that is not known.
    await asyncio.wait((asking,), timeout=0.2)
    assert not asking.done()
    go.set()
    assert (await asking).reason == "REQUEST_ID_REUSED"
    again = await service.call("worker", "ClaimNext", **CLAIM)
    assert again.claimed.task.task_id == "first"
    assert (await service.task("second")).fence == 0


async def test_whether_a_claim_was_granted_can_be_asked_without_claiming(service: DurableUnderTest) -> None:
    await service.create("first")
    refusal = await service.party("worker").refused("ClaimTask", **ELSEWHERE)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
    assert (await service.task("first")).fence == 0
    await service.call("worker", "ClaimNext", **CLAIM)
    assert (await service.party("worker").refused("ClaimTask", **ELSEWHERE)).reason == "REQUEST_ID_REUSED"


async def test_one_at_a_time_and_nothing_is_kept() -> None:
    claims = ClaimsUnderWay()
    inside: list[int] = []

    async def enter(number: int) -> bool:
        async with claims.entered(("holder", "claim")) as under_way:
            inside.append(number)
            await asyncio.sleep(0)
            assert inside[-1] == number
            return under_way.superseded

    assert await asyncio.gather(*(enter(number) for number in range(5))) == [True, True, True, True, False]
    assert claims._turns == {}
