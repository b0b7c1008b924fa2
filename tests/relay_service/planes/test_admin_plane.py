"""What the operator sees of a running relay, and who else does not."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from relay_service.planes.convert import stub_from_proto
from sealwork.relay.v1 import admin_pb2, daemon_plane_pb2, job_pb2
from tests.relay_service.planes.scene import DONE, HELD, SEALED, scene
from tests.relay_service.planes.wasted_windows import reports, waste_windows
from tests.relay_service.raw_client import RawOperator, Refusal, method_of, row
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, Serve, keys_of

METHODS: dict[str, Any] = {
    "GetStats": admin_pb2.GetStatsRequest,
    "ListJobs": admin_pb2.ListJobsRequest,
    "ListDaemons": admin_pb2.ListDaemonsRequest,
    "ListSites": admin_pb2.ListSitesRequest,
    "ListChurnReports": admin_pb2.ListChurnReportsRequest,
}


@pytest.fixture
async def relay(serve: Serve) -> AsyncIterator[RelayUnderTest]:
    async with scene(serve) as running:
        yield running


async def test_the_counts(relay: RelayUnderTest) -> None:
    await relay.daemon().connect(limit=0, inventory={"leases": [HELD, SEALED]})
    await relay.site().connect(limit=0)
    await relay.clock.advance_async(1_500)
    stats = (await relay.operator().call("GetStats", admin_pb2.GetStatsRequest())).stats
    assert (stats.daemon_sessions, stats.site_sessions) == (1, 1)
    assert (stats.queued_jobs, stats.awaiting_jobs, stats.running_jobs, stats.done_jobs) == (1, 1, 1, 1)
    assert stats.server_instance == "relay-test"
    assert stats.uptime.ToMilliseconds() == 1_500
    assert stats.version
    assert (stats.projection_revision, stats.projection_broken) == (0, False)
    relay.source.replace(relay.source.current)
    stats = (await relay.operator().call("GetStats", admin_pb2.GetStatsRequest())).stats
    assert stats.projection_revision == 1


async def test_the_age_of_the_oldest_queued_job(relay: RelayUnderTest) -> None:
    async def age_ms() -> int | None:
        stats = (await relay.operator().call("GetStats", admin_pb2.GetStatsRequest())).stats
        return stats.oldest_queued.ToMilliseconds() if stats.HasField("oldest_queued") else None

    assert await age_ms() == 0
    await relay.clock.advance_async(2_500)
    await relay.enqueue("young")
    assert await age_ms() == 2_500
    await relay.cancel("queued")
    assert await age_ms() == 0
    await relay.cancel("young")
    assert await age_ms() is None


async def test_sites_that_waste_windows(relay: RelayUnderTest) -> None:
    assert await reports(relay.operator()) == []
    # The scene has wasted none, and one of its grants waits for its payload.
    for owner in ("alice", "bob"):
        await waste_windows(relay, owner)
    listed = await reports(relay.operator())
    assert [(each.site_id, each.owner, each.expiries) for each in listed] == [
        ("demo", "bob", 6),
        ("demo", "alice", 6),
    ]
    assert [each.window.ToMilliseconds() for each in listed] == [300_000, 300_000]
    assert listed[0].report_time.ToMilliseconds() == relay.clock.now_ms()
    # Whichever relay notices counts.
    counts = [server.metrics.value("relay_unsealed_churn_total") or 0 for server in relay.servers]
    assert sum(counts) == 2
    first = await relay.operator().call("ListChurnReports", admin_pb2.ListChurnReportsRequest(page_size=1))
    assert (list(first.reports), first.next_page_token) == (listed[:1], "1")


async def test_the_jobs_oldest_first(relay: RelayUnderTest) -> None:
    jobs = (await relay.operator().call("ListJobs", admin_pb2.ListJobsRequest())).jobs
    assert [job.stub.id for job in jobs] == ["held", "sealed", "done", "queued"]
    assert {job.site_id for job in jobs} == {"demo"}
    assert [job.state for job in jobs] == [
        job_pb2.JOB_STATE_AWAITING_PAYLOAD,
        job_pb2.JOB_STATE_READY,
        job_pb2.JOB_STATE_DONE,
        job_pb2.JOB_STATE_QUEUED,
    ]
    assert [job.runner_id for job in jobs] == ["runner-1", "runner-1", "runner-1", ""]
    assert [(job.payload_bytes, job.result_bytes) for job in jobs] == [(0, 0), (14, 0), (0, 13), (0, 0)]
    assert jobs[0].stub == relay.stub("held")


async def test_jobs_by_site_and_state(relay: RelayUnderTest) -> None:
    async def listed(**fields: Any) -> list[str]:
        answer = await relay.operator().call("ListJobs", admin_pb2.ListJobsRequest(**fields))
        return [job.stub.id for job in answer.jobs]

    assert await listed(site_id="other") == []
    assert await listed(site_id="demo", state=job_pb2.JOB_STATE_READY) == ["sealed"]
    assert await listed(state=job_pb2.JOB_STATE_RUNNING) == []


@pytest.mark.parametrize(("method", "count"), [("ListJobs", 4), ("ListDaemons", 3), ("ListSites", 2)])
async def test_pages(relay: RelayUnderTest, method: str, count: int) -> None:
    kind = METHODS[method]
    everything = await relay.operator().call(method, kind())
    rows = getattr(everything, method.removeprefix("List").lower())
    assert (len(rows), everything.next_page_token) == (count, "")
    token, seen = "", []
    for _ in range(count):
        page = await relay.operator().call(method, kind(page_size=1, page_token=token))
        seen += list(getattr(page, method.removeprefix("List").lower()))
        token = page.next_page_token
    assert token == ""
    assert seen == list(rows)
    beyond = await relay.operator().call(method, kind(page_token="999"))
    assert not getattr(beyond, method.removeprefix("List").lower())


async def test_the_devices(relay: RelayUnderTest) -> None:
    held = {"leases": [HELD, SEALED]}
    stream = await relay.daemon().connect(limit=7, inventory=held, client_version="0.9.0")
    await stream.next("granted")
    daemons = (await relay.operator().call("ListDaemons", admin_pb2.ListDaemonsRequest())).daemons
    first, second, _ = daemons
    assert (first.runner_id, first.owner, first.key_id) == (
        "runner-1",
        "alice",
        keys_of("runner-1").key_id,
    )
    assert (first.connected, first.client_version, first.revoked) == (True, "0.9.0", False)
    # One more was granted at once: the job that was queued.
    assert (first.leases, first.credit) == (3, 6)
    assert first.last_seen_time.ToMilliseconds() == START_MS
    assert list(first.matrix) == [row()]
    assert (second.connected, second.client_version, second.leases, second.credit) == (False, "", 0, 0)
    assert not second.HasField("last_seen_time")


async def test_the_sites(relay: RelayUnderTest) -> None:
    await relay.site().connect(limit=0)
    demo, other = (await relay.operator().call("ListSites", admin_pb2.ListSitesRequest())).sites
    assert (demo.site_id, demo.key_id, demo.sessions) == ("demo", keys_of("demo").key_id, 1)
    assert (demo.unfinished_jobs, demo.unsettled_notices) == (3, 2)
    assert (other.sessions, other.unfinished_jobs, other.unsettled_notices) == (0, 0, 0)


async def test_all_unsettled_rows_are_counted(relay: RelayUnderTest) -> None:
    for number in range(600):
        await relay.store.enqueue("demo", stub_from_proto(relay.stub(f"job-{number}")))
        await relay.store.cancel("demo", f"job-{number}")
    demo = (await relay.operator().call("ListSites", admin_pb2.ListSitesRequest())).sites[0]
    assert demo.unsettled_notices == 602


async def test_no_answer_holds_ciphertext(relay: RelayUnderTest) -> None:
    for method, kind in METHODS.items():
        answer = await relay.operator().call(method, kind())
        for sealed in (b"sealed payload", b"sealed result"):
            assert sealed not in answer.SerializeToString()


@pytest.mark.parametrize("method", METHODS)
async def test_nobody_else_is_answered(relay: RelayUnderTest, method: str) -> None:
    """Neither a stranger nor another key, nor a site or device under its own name."""
    for name, keys in (
        ("operator", "stranger"),
        ("stranger", "operator"),
        ("demo", "demo"),
        ("runner-1", "runner-1"),
    ):
        caller = RawOperator(relay.channel, name, keys_of(keys), relay.clock.now_ms)
        refusal = await caller.refused(method, METHODS[method]())
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "BAD_SIGNATURE")
    unsigned = await relay.operator().refused(method, METHODS[method](), (("sealwork-protocol", "1"),))
    assert (unsigned.code, unsigned.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNSIGNED_REQUEST")


async def test_the_operator_is_no_site_and_no_device(relay: RelayUnderTest) -> None:
    for party in (relay.site, relay.daemon):
        caller = party("operator", keys=keys_of("operator"))
        method = "GetSites" if party == relay.daemon else "CancelJob"
        refusal = await caller.refused(method, b"")
        assert refusal.reason == "BAD_SIGNATURE"


# -- Watch --------------------------------------------------------------------------------


def watch(relay: RelayUnderTest, operator: RawOperator | None = None, period_ms: int | None = None) -> Any:
    operator = operator or relay.operator()
    request = admin_pb2.RelayAdminServiceWatchRequest()
    if period_ms is not None:
        request.period.FromMilliseconds(period_ms)
    body = request.SerializeToString()
    method = relay.channel.unary_stream(method_of("RelayAdminService", "Watch"))
    return method(body, metadata=operator.signed("Watch", body), timeout=30)


async def counts(call: Any) -> Any:
    raw = await call.read()
    assert raw is not grpc.aio.EOF
    return admin_pb2.RelayAdminServiceWatchResponse.FromString(raw).stats


async def refusal_of(call: Any) -> Refusal:
    assert await call.code() is not grpc.StatusCode.OK
    return Refusal.of_call(await call.code(), await call.trailing_metadata())


@pytest.mark.parametrize(("period_ms", "wait_ms"), [(None, 1_000), (200, 200)])
async def test_a_watch_tells_the_counts_at_once_and_then_every_period(
    relay: RelayUnderTest, period_ms: int | None, wait_ms: int
) -> None:
    call = watch(relay, period_ms=period_ms)
    assert (await counts(call)).queued_jobs == 1
    await relay.cancel("queued")
    for _ in range(3):
        await relay.clock.advance_async(wait_ms)
        assert (await counts(call)).queued_jobs == 0
    call.cancel()


@pytest.mark.parametrize("period_ms", [0, 199, 15_001, -1])
async def test_a_period_out_of_bounds(relay: RelayUnderTest, period_ms: int) -> None:
    refusal = await refusal_of(watch(relay, period_ms=period_ms))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert refusal.fields == ("period",)


async def test_a_watch_is_for_the_operator_alone(relay: RelayUnderTest) -> None:
    stranger = RawOperator(relay.channel, "operator", keys_of("stranger"), relay.clock.now_ms)
    assert (await refusal_of(watch(relay, stranger))).reason == "BAD_SIGNATURE"


async def test_a_drain_ends_a_watch_at_once(relay: RelayUnderTest) -> None:
    """It would hold up the end of the process for the whole of its grace."""
    call = watch(relay, period_ms=15_000)
    await counts(call)
    await relay.drain()
    refusal = await refusal_of(call)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")


async def test_finished_jobs_count_as_no_leases(relay: RelayUnderTest) -> None:
    held = daemon_plane_pb2.RenewLeasesRequest(leases=[DONE])
    verdicts = (await relay.daemon().call("RenewLeases", held)).verdicts
    assert [verdict.state for verdict in verdicts] == [job_pb2.LEASE_STATE_COMPLETED]
    first = (await relay.operator().call("ListDaemons", admin_pb2.ListDaemonsRequest())).daemons[0]
    assert (first.connected, first.leases) == (False, 2)
