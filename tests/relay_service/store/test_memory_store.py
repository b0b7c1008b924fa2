"""What the memory store promises beyond the contract: exact instants, restarts, listeners."""

import logging
from itertools import count

import pytest

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import (
    Audience,
    Change,
    Disposition,
    GrantedJob,
    JobKey,
    JobStub,
    LeaseRef,
    NoticeAdded,
    Refusal,
    ReleaseReason,
    Route,
    SizeClass,
    VerdictState,
)
from relay_service.core.moves import Transition
from relay_service.store.base import ClaimRequest
from relay_service.store.contract.scene import Scene, device, envelope, presence
from relay_service.store.memory import MemoryRoutingStore
from relay_service.store.memory_recall import Recall

START_MS = 1_700_000_000_000


class Bench:
    """A store at a clock that is moved by hand."""

    def __init__(self, start_ms: int = START_MS) -> None:
        leases = count(1)
        self.now_ms = start_ms
        self.store = MemoryRoutingStore(lambda: self.now_ms, lambda: f"lease-{next(leases)}")
        self.scene = Scene(self.store)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_window_is_over_at_its_very_end(bench: Bench) -> None:
    await bench.scene.claimed("a")
    bench.now_ms += 9_999
    assert await bench.scene.state("a") == "awaiting-payload"
    bench.now_ms += 1
    assert await bench.scene.state("a") == "queued"


async def test_the_lease_is_over_at_its_very_end(bench: Bench) -> None:
    await bench.scene.ready("a", lease_ms=60_000)
    bench.now_ms += 59_999
    assert await bench.scene.state("a") == "ready"
    bench.now_ms += 1
    assert await bench.scene.state("a") == "queued"


async def test_the_deadline_is_over_at_its_very_end(bench: Bench) -> None:
    await bench.scene.enqueue("a", deadline_at_ms=START_MS + 700)
    bench.now_ms += 699
    assert await bench.scene.state("a") == "queued"
    bench.now_ms += 1
    assert await bench.scene.state("a") == "gone"


async def test_the_wait_for_a_sticky_runner_is_over_at_its_very_end(bench: Bench) -> None:
    await bench.scene.claimed("a")
    bench.now_ms += 10_000
    assert (await bench.scene.job("a")).sticky_until_ms == START_MS + 20_000
    bench.now_ms += 9_999
    assert (await bench.scene.job("a")).seal_attempts == 1
    bench.now_ms += 1
    assert (await bench.scene.job("a")).seal_attempts == 2


async def test_an_end_is_told_for_exactly_a_day(bench: Bench) -> None:
    await bench.scene.enqueue("a")
    await bench.store.cancel("site_store", "a")
    assert await bench.store.next_due_ms() == START_MS + 86_400_000
    bench.now_ms += 86_399_999
    assert await bench.scene.notice_kinds() == ["job-ended"]
    bench.now_ms += 1
    assert await bench.scene.notice_kinds() == []
    assert await bench.store.next_due_ms() is None


async def test_presence_lasts_exactly_an_hour(bench: Bench) -> None:
    await bench.store.seen(presence("runner_1"))
    bench.now_ms += 3_599_999
    assert await bench.store.presence("runner_1") is not None
    bench.now_ms += 1
    assert await bench.store.presence("runner_1") is None


async def test_everything_that_is_due_is_done_in_order(bench: Bench) -> None:
    heard: list[Change] = []
    await bench.scene.enqueue("late", deadline_at_ms=START_MS + 30_000)
    await bench.scene.enqueue("early", deadline_at_ms=START_MS + 20_000)
    await bench.scene.enqueue("first", deadline_at_ms=START_MS + 20_000)
    bench.store.listen(heard.append)
    bench.now_ms += 50_000
    swept = await bench.store.sweep()
    assert [key.job_id for key in swept.ended] == ["early", "first", "late"]
    assert heard == [NoticeAdded("site_store")] * 3


async def test_a_cursor_outlives_a_restart(bench: Bench) -> None:
    for number in range(500):
        await bench.scene.enqueue(f"job-{number}")
        await bench.store.cancel("site_store", f"job-{number}")
    cursor = (await bench.scene.notices())[-1].sequence
    restarted = Bench(START_MS + 1_000)
    await restarted.scene.enqueue("a")
    await restarted.store.cancel("site_store", "a")
    rows = await restarted.store.notices("site_store", cursor, 10)
    assert [row.key.job_id for row in rows] == ["a"]


async def test_sequences_say_nothing_about_other_sites(bench: Bench) -> None:
    for number in range(50):
        await bench.scene.enqueue(f"job-{number}", site="busy")
        await bench.store.cancel("busy", f"job-{number}")
    await bench.scene.enqueue("a", "b")
    for job_id in ("a", "b"):
        await bench.store.cancel("site_store", job_id)
    first, second = [row.sequence for row in await bench.scene.notices()]
    assert (first, second) == (START_MS * 1_000 + 1, START_MS * 1_000 + 2)


async def test_a_page_is_right_whatever_was_settled_before_it(bench: Bench) -> None:
    for number in range(300):
        await bench.scene.enqueue(f"job-{number}")
        await bench.store.cancel("site_store", f"job-{number}")
    rows = await bench.scene.notices()
    odd = [row.notice_id for at, row in enumerate(rows) if at % 50]
    assert len(await bench.store.acknowledge("site_store", [], odd)) == 294
    page = await bench.store.notices("site_store", rows[100].sequence, 3)
    assert [row.key.job_id for row in page] == ["job-150", "job-200", "job-250"]


async def test_a_past_lease_is_explained_for_ten_minutes(bench: Bench) -> None:
    grant = await bench.scene.claimed("a")
    await bench.scene.release(grant)
    bench.now_ms += 599_999
    (verdict,) = await bench.scene.renew(grant)
    assert (verdict.state, verdict.end and verdict.end.value) == (VerdictState.LOST, "released")
    bench.now_ms += 1
    (verdict,) = await bench.scene.renew(grant)
    assert (verdict.state, verdict.end) == (VerdictState.LOST, None)


async def test_a_settled_id_is_known_for_two_minutes(bench: Bench) -> None:
    await bench.scene.done("a")
    assert list(await bench.store.acknowledge("site_store", ["a"])) == ["a"]
    bench.now_ms += 119_999
    assert list(await bench.store.acknowledge("site_store", ["a"])) == ["a"]
    bench.now_ms += 1
    assert list(await bench.store.acknowledge("site_store", ["a"])) == []


async def test_an_id_in_use_again_is_not_settled_any_more(bench: Bench) -> None:
    await bench.scene.done("a")
    await bench.store.acknowledge("site_store", ["a"])
    await bench.scene.enqueue("a")
    assert list(await bench.store.acknowledge("site_store", ["a"])) == []
    await bench.store.cancel("site_store", "a")
    assert list(await bench.store.acknowledge("site_store", ["a"])) == ["a"]


async def test_a_failing_listener_harms_nobody(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Change] = []

    def broken(change: Change) -> None:
        raise RuntimeError("broken")

    bench.store.listen(broken)
    bench.store.listen(heard.append)
    with caplog.at_level(logging.ERROR):
        await bench.scene.enqueue("a")
    assert len(heard) == 1
    assert [record.getMessage() for record in caplog.records] == ["a listener of the store failed"]


async def test_listeners_hear_of_what_is_written(bench: Bench) -> None:
    seen: list[str] = []

    def look(change: Change) -> None:
        row = bench.store._table.row("site_store", "a")
        seen.append("nothing" if row is None else row.known.state.value)

    bench.store.listen(look)
    await bench.scene.claimed("a")
    assert seen == ["queued", "awaiting-payload"]


async def test_a_closed_store_tells_nobody(bench: Bench) -> None:
    bench.scene.watch()
    await bench.store.close()
    await bench.scene.enqueue("a")
    assert bench.scene.changes == []


async def test_the_operator_sees_every_job(bench: Bench) -> None:
    await bench.scene.enqueue("a")
    await bench.scene.enqueue("b", site="site_other")
    assert [job.key for job in await bench.store.jobs()] == [
        JobKey("site_store", "a"),
        JobKey("site_other", "b"),
    ]


async def test_the_same_job_id_held_for_two_sites(bench: Bench) -> None:
    grants: dict[str, GrantedJob] = {}
    for site in ("one", "two"):
        await bench.scene.enqueue("a", site=site)
        (grants[site],) = await bench.scene.claim(routes=[(site, "alice")])
    one, two = grants["one"], grants["two"]
    assert await bench.scene.release(two) == ["a"]
    assert await bench.scene.state("a", "one") == "awaiting-payload"
    assert await bench.scene.state("a", "two") == "queued"
    # A lease that ended falls back to the job of that id which the runner does hold.
    stale = await bench.store.complete("runner_1", LeaseRef("a", two.lease_id), envelope(), Disposition.OK)
    assert stale is not None
    assert getattr(stale, "value", None) == "stale-lease"
    assert await bench.scene.release(one) == ["a"]


async def test_a_move_that_the_table_does_not_know_is_a_fault(bench: Bench) -> None:
    grant = await bench.scene.done("a")
    finished = await bench.scene.job("a")
    await bench.store.acknowledge("site_store", ["a"])
    await bench.scene.enqueue("a")
    row = bench.store._table.row("site_store", "a")
    assert row is not None
    with pytest.raises(AssertionError, match="a move that its table does not know"):
        bench.store._steps.take(row, Transition(finished), bench.now_ms)
    assert await bench.scene.state("a") == "queued"
    assert await bench.scene.take(grant) is Refusal.NOT_FOUND


async def test_clock_steps_back_do_no_harm(bench: Bench) -> None:
    grant = await bench.scene.running("a")
    bench.now_ms -= 3_600_000
    (verdict,) = await bench.scene.renew(grant)
    assert (verdict.state, verdict.expires_at_ms) == (VerdictState.ACTIVE, START_MS - 3_540_000)
    bench.now_ms += 60_000
    assert await bench.scene.state("a") == "queued"


async def test_a_default_store_has_the_quotas_of_the_protocol(bench: Bench) -> None:
    routes = frozenset(Route("site", f"owner-{number}") for number in range(100))
    for route in routes:
        stub = JobStub(
            "job-" + route.owner, "k", route.owner, "s", Audience.TEAM, SizeClass.SMALL, False, 2 * START_MS
        )
        await bench.store.enqueue("site", stub)
    request = ClaimRequest("r1", "alice", device(), routes, frozenset({"k"}), 100, 60_000)
    assert len(await bench.store.claim(request)) == 64


async def test_a_key_is_compared_and_never_an_address(bench: Bench) -> None:
    same = PublicIdentity(bytes([1]) * 32, bytes([9]) * 32, bytes([9]) * 64)
    grant = await bench.scene.claimed("a")
    sealed = await bench.scene.seal(grant, recipient=same.key_id)
    assert getattr(sealed, "state", None) == "ready"


async def test_unacknowledged_grants_cost_nothing(bench: Bench) -> None:
    grant = await bench.scene.claimed("a")
    assert await bench.scene.release(grant, ReleaseReason.UNACKNOWLEDGED) == ["a"]
    job = await bench.scene.job("a")
    assert (job.seal_attempts, job.refused_by, job.retry_after_ms, job.reoffer_to) == (0, (), (), None)


def test_recall_forgets_by_time_and_by_number() -> None:
    recall: Recall[str, int] = Recall(1_000, maximum=2)
    recall.put("a", 1, 0)
    assert (recall.get("a", 999), recall.get("a", 1_000)) == (1, None)
    recall.put("b", 2, 10)
    recall.put("c", 3, 10)
    assert (recall.get("a", 10), recall.get("b", 10), recall.get("c", 10)) == (None, 2, 3)
    recall.put("b", 4, 20)
    recall.put("d", 5, 20)
    assert (recall.get("b", 20), recall.get("c", 20), recall.get("d", 20)) == (4, None, 5)
    assert list(recall.values(1_015)) == [4, 5]
    recall.pop("b")
    recall.pop("unknown")
    assert list(recall.values(20)) == [5]
