"""Unary calls that wait: the twins of what the streams push."""

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from relay_service.store.base import ClaimRequest
from relay_service.store_guard import store_unavailable
from sealwork.relay.v1 import site_plane_pb2
from tests.harness.waiting import eventually
from tests.relay_service.planes.scene import claim
from tests.relay_service.raw_client import row
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, ref

TEN_SECONDS = Duration(seconds=10)


async def claimed(relay: RelayUnderTest, request_id: str = "claim", **fields: Any) -> list[str]:
    answer = await relay.daemon().call("ClaimJobs", claim(request_id, **fields), timeout=30)
    return [granted.stub.id for granted in answer.granted]


async def waiting_for_work(relay: RelayUnderTest, count: int = 1) -> None:
    await eventually(lambda: len(relay.who_waits()) == count)


async def test_a_claim_takes_what_is_there(relay: RelayUnderTest) -> None:
    await relay.enqueue("job-1", "job-2")
    answer = await relay.daemon().call("ClaimJobs", claim(max_jobs=5, wait=TEN_SECONDS))
    assert [granted.stub.id for granted in answer.granted] == ["job-1", "job-2"]
    lease = answer.granted[0].lease
    assert ref(answer.granted[0]) == await relay.lease_of("job-1")
    assert lease.remaining.ToMilliseconds() == 60_000
    assert lease.expire_time.ToMilliseconds() == START_MS + 60_000


async def test_a_claim_without_a_wait_is_answered_at_once(relay: RelayUnderTest) -> None:
    assert await claimed(relay) == []
    assert relay.who_waits() == []


async def test_a_claim_waits_for_the_first_job(relay: RelayUnderTest) -> None:
    waiting = asyncio.create_task(claimed(relay, wait=TEN_SECONDS, max_jobs=5))
    await waiting_for_work(relay)
    await relay.enqueue("job-1")
    assert await waiting == ["job-1"]
    # What comes later is nobody's: the call has been answered.
    await relay.enqueue("job-2")
    assert await relay.state("job-2") == "queued"


async def test_a_claim_waits_ten_seconds_at_most(relay: RelayUnderTest) -> None:
    waiting = asyncio.create_task(claimed(relay, wait=TEN_SECONDS))
    await waiting_for_work(relay)
    await relay.clock.advance_async(9_999)
    assert not waiting.done()
    await relay.clock.advance_async(1)
    assert await waiting == []
    assert relay.who_waits() == []


async def test_a_claim_that_was_given_up_takes_nothing(relay: RelayUnderTest) -> None:
    waiting = asyncio.create_task(claimed(relay, wait=TEN_SECONDS))
    await waiting_for_work(relay)
    waiting.cancel()
    await waiting_for_work(relay, 0)
    await relay.enqueue("job-1")
    assert await relay.state("job-1") == "queued"


async def test_a_repeated_claim_is_answered_with_the_same_grants(relay: RelayUnderTest) -> None:
    await relay.enqueue("job-1", "job-2")
    first = await relay.daemon().call("ClaimJobs", claim("one"))
    again = await relay.daemon().call("ClaimJobs", claim("one"))
    assert [ref(granted) for granted in again.granted] == [await relay.lease_of("job-1")]
    assert first == again
    assert await claimed(relay, "two") == ["job-2"]


async def test_two_waiting_claims_take_one_job_each(relay: RelayUnderTest) -> None:
    waiting = [asyncio.create_task(claimed(relay, name, wait=TEN_SECONDS)) for name in ("a", "b")]
    await waiting_for_work(relay, 2)
    await relay.enqueue("job-1", "job-2")
    assert sorted(await asyncio.gather(*waiting)) == [["job-1"], ["job-2"]]


async def test_a_claim_is_granted_nothing_that_it_does_not_advertise(relay: RelayUnderTest) -> None:
    await relay.enqueue("job-1")
    assert await claimed(relay, matrix=[]) == []
    assert await claimed(relay, matrix=[row("llm.chat")]) == []
    presence = await relay.store.presence("runner-1")
    assert presence is not None
    assert [capability.kind for capability in presence.capabilities] == ["llm.chat"]


async def test_a_claim_needs_no_acknowledgement(relay: RelayUnderTest) -> None:
    await relay.enqueue("job-1")
    await claimed(relay)
    await relay.seal(await relay.lease_of("job-1"))
    await relay.pass_time(59_999)
    assert await relay.state("job-1") == "ready"


async def test_news_of_a_claimed_job_comes_on_the_stream_if_there_is_one(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=0)
    await relay.enqueue("job-1")
    await claimed(relay)
    lease = await relay.lease_of("job-1")
    await relay.seal(lease)
    assert (await stream.next("payload_ready")).lease == lease


async def test_a_claim_whose_store_went_away_is_looked_at_when_it_is_back(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was away at the one moment between the call's own look and its place among those who wait."""
    looks = 0
    store = relay.server_of("daemon").relay.store
    look = store.claim

    async def second_look_fails(request: ClaimRequest) -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise store_unavailable()
        return await look(request)

    monkeypatch.setattr(store, "claim", second_look_fails)
    waiting = asyncio.create_task(claimed(relay, wait=TEN_SECONDS))
    await eventually(lambda: looks >= 2)
    await waiting_for_work(relay)
    # The next turn of the sweeper makes up for news that was missed.
    await relay.clock.advance_async(250)
    await eventually(lambda: looks >= 3)
    await relay.enqueue("job-1")
    assert await waiting == ["job-1"]


# -- notices ------------------------------------------------------------------------------


async def listed(relay: RelayUnderTest, **fields: Any) -> Any:
    request = site_plane_pb2.ListNoticesRequest(**fields)
    return await relay.site().call("ListNotices", request, timeout=30)


async def test_the_inbox_is_what_the_stream_would_push(relay: RelayUnderTest) -> None:
    site, device = await relay.site().connect(), await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1", "job-2")
    await relay.cancel("job-2")
    await device.next("granted")
    pushed = [await site.next("notice") for _ in range(2)]
    assert list((await listed(relay)).notices) == pushed


async def test_a_listing_in_pages(relay: RelayUnderTest) -> None:
    names = [f"job-{number}" for number in range(5)]
    await relay.enqueue(*names)
    for name in names:
        await relay.cancel(name)
    token, seen = "", []
    for size in (2, 2, 2, 2):
        page = await listed(relay, page_size=size, page_token=token)
        seen += [notice.job_id for notice in page.notices]
        token = page.next_page_token
    assert seen == names
    # Also after an empty page there is a token to go on with.
    await relay.enqueue("late")
    await relay.cancel("late")
    assert [notice.job_id for notice in (await listed(relay, page_token=token)).notices] == ["late"]


async def test_a_listing_waits_for_the_first_row(relay: RelayUnderTest) -> None:
    waiting = asyncio.create_task(listed(relay, wait=TEN_SECONDS))
    await eventually(lambda: relay.server.relay.inbox._waiters)
    await relay.enqueue("job-1")
    await relay.cancel("job-1")
    assert [notice.job_id for notice in (await waiting).notices] == ["job-1"]
    assert relay.server.relay.inbox._waiters == {}


async def test_a_listing_waits_ten_seconds_at_most(relay: RelayUnderTest) -> None:
    waiting = asyncio.create_task(listed(relay, wait=TEN_SECONDS))
    await eventually(lambda: relay.server.relay.inbox._waiters)
    await relay.clock.advance_async(10_000)
    answer = await waiting
    assert (list(answer.notices), answer.next_page_token) == ([], "0")
    assert relay.server.relay.inbox._waiters == {}


async def test_reading_settles_nothing(relay: RelayUnderTest) -> None:
    device = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    lease = ref(await device.next("granted"))
    for _ in range(2):
        assert [notice.please_seal.lease_id for notice in (await listed(relay)).notices] == [lease.lease_id]
