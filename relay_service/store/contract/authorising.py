"""Grants that are held back until the operator's policy has agreed."""
# ruff: noqa: S101

from collections.abc import Sequence

from relay_service.core.model import (
    Audience,
    ChurnReport,
    JobEnd,
    LeaseChanged,
    LeaseRef,
    NoticeAdded,
    NoticeKind,
    Refusal,
    Route,
    VerdictState,
    WorkAvailable,
)
from relay_service.store.base import TooLate
from relay_service.store.contract.scene import OTHER_SITE, SITE, Scene, StoreHarness, ids, reference

_ROUTE = Route(SITE, "alice")


class AuthorisingCases:
    """Nobody hears of a grant that is held back, and it begins when it is authorised."""

    async def test_a_grant_that_is_held_back_is_known_to_nobody(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        scene.watch()
        (grant,) = await scene.claim(authorise=True)
        await store_harness.delivered()
        assert grant.held_back
        assert (grant.awaiting_until_ms, grant.signed_grant) == (0, None)
        assert scene.changes == []
        assert await scene.notice_kinds() == []
        assert list(await scene.store.awaiting(SITE)) == []
        assert list(await scene.store.held("runner_1")) == []

    async def test_its_holder_can_do_nothing_with_it(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        assert await scene.take(grant) is Refusal.NOT_FOUND
        assert await scene.complete(grant) is Refusal.NOT_FOUND
        assert await scene.release(grant) == []
        (verdict,) = await scene.renew(grant)
        assert (verdict.state, verdict.end) == (VerdictState.LOST, None)
        assert await scene.state() == "authorising"

    async def test_another_lease_of_its_job_is_unknown_and_not_stale(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.held_back()
        other = LeaseRef("a", "invented")
        assert await scene.store.take_payload("runner_1", other) is Refusal.NOT_FOUND

    async def test_its_site_cannot_seal_to_it(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        answer = await scene.seal(await scene.held_back())
        assert isinstance(answer, TooLate)
        assert answer.refusal is Refusal.STALE_LEASE

    async def test_window_and_lease_begin_with_the_authorisation(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        await store_harness.advance(4_000)
        before = await scene.store.now()
        granted = await scene.authorise(grant, b"\x00signed\xff", lease_ms=45_000)
        after = await scene.store.now()
        assert granted is not None
        assert (granted.lease_id, granted.held_back) == (grant.lease_id, False)
        assert granted.signed_grant == b"\x00signed\xff"
        assert before + 45_000 <= granted.lease_expires_at_ms <= after + 45_000
        assert before + 10_000 <= granted.awaiting_until_ms <= after + 10_000
        notice = await scene.notice(NoticeKind.PLEASE_SEAL)
        assert notice.claim is not None
        assert notice.claim.lease_id == grant.lease_id
        assert notice.seal_until_ms == granted.awaiting_until_ms
        assert list(await scene.store.held("runner_1")) == [granted]
        assert [job.key.job_id for job in await scene.store.awaiting(SITE)] == ["a"]

    async def test_an_authorised_grant_runs_its_course(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        await scene.authorise(grant)
        await store_harness.advance(8_000)
        await scene.seal(grant)
        await scene.take(grant)
        await scene.renew(grant)
        assert (await scene.store.held("runner_1"))[0].signed_grant == b"signed"
        await scene.complete(grant)
        assert await scene.state() == "done"

    async def test_an_authorised_window_that_lapses_counts(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.authorise(await scene.held_back())
        await store_harness.advance(10_000)
        job = await scene.job()
        assert (job.state.value, job.seal_attempts, job.reoffer_to) == ("queued", 1, "runner_1")

    async def test_the_first_authorisation_counts(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        first = await scene.authorise(grant, b"first")
        await store_harness.advance(1_000)
        assert await scene.authorise(grant, b"second") == first
        assert await scene.decline(grant, refused=True) is False
        assert await scene.notice_kinds() == ["please-seal"]

    async def test_only_this_very_grant_is_authorised(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        lease = reference(grant)
        assert await scene.authorise(grant, runner="runner_2") is None
        store = scene.store
        assert await store.authorise_grant("runner_1", LeaseRef("b", lease.lease_id), b"", 9) is None
        assert await store.authorise_grant("runner_1", LeaseRef("a", "invented"), b"", 9) is None
        assert await scene.state() == "authorising"

    async def test_a_repeated_claim_answers_what_is_held_back(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c")
        first = await scene.claim(authorise=True, request_id="q")
        assert list(await scene.claim(authorise=True, request_id="q")) == list(first)
        assert ids(first) == ["a", "b"]
        assert all(grant.held_back for grant in first)

    async def test_a_repeated_claim_answers_the_same_signed_grant(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b")
        yes, no = await scene.claim(authorise=True, request_id="q")
        granted = await scene.authorise(yes, b"kept")
        await scene.decline(no, refused=True)
        assert list(await scene.claim(authorise=True, request_id="q")) == [granted]
        assert granted is not None
        assert granted.signed_grant == b"kept"

    async def test_grants_that_are_held_back_count_against_the_route(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b", "c")
        first, second = await scene.claim(authorise=True)
        assert ids(await scene.claim("runner_2", authorise=True)) == []
        await scene.authorise(first)
        await store_harness.advance(6_000)
        # The other one has gone back; the authorised one waits for its site still.
        assert ids(await scene.claim("runner_2", maximum=1, authorise=True)) == [second.stub.id]
        assert ids(await scene.claim("runner_3", authorise=True)) == []

    async def test_the_site_is_asked_in_the_order_of_authorisation(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", "b")
        first, second = await scene.claim(authorise=True)
        await scene.authorise(second)
        await scene.authorise(first)
        assert [job.key.job_id for job in await scene.store.awaiting(SITE)] == ["b", "a"]
        assert [notice.key.job_id for notice in await scene.notices()] == ["b", "a"]
        assert ids(await scene.store.held("runner_1")) == ["a", "b"]

    async def test_grants_that_are_held_back_count_against_the_device(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        routes = [(SITE, f"owner-{number:02}") for number in range(65)]
        for number in range(65):
            await scene.enqueue(f"job-{number}", owner=f"owner-{number:02}", audience=Audience.TEAM)
        assert len(await scene.claim(routes=routes, maximum=64, authorise=True)) == 64
        assert ids(await scene.claim(routes=routes, authorise=True)) == []


class DecliningCases:
    """A grant that was held back goes back without a word, however it ends."""

    async def test_it_lapses_without_any_mark(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        scene.watch()
        await store_harness.advance(5_000)
        swept = await scene.store.sweep()
        await store_harness.delivered()
        assert [key.job_id for key in swept.requeued] == ["a"]
        job = await scene.job()
        assert (job.state.value, job.seal_attempts, job.reoffer_to) == ("queued", 0, None)
        assert (job.refused_by, job.retry_after_ms) == ((), ())
        assert await scene.notice_kinds() == []
        assert _told(scene) == [WorkAvailable(_ROUTE, "llm.generate", Audience.PRIVATE)]
        assert await scene.authorise(grant) is None
        assert ids(await scene.claim("runner_2")) == ["a"]

    async def test_it_does_not_lapse_before(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        await store_harness.advance(4_400)
        assert await scene.authorise(grant) is not None

    async def test_however_often_it_lapses_no_churn_is_reported(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        scene.watch()
        for _ in range(7):
            assert ids(await scene.claim(authorise=True)) == ["a"]
            await store_harness.advance(5_000)
        await scene.store.sweep()
        await store_harness.delivered()
        assert not [change for change in scene.changes if isinstance(change, ChurnReport)]
        assert (await scene.job()).seal_attempts == 0

    async def test_a_reservation_outlives_it(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed()
        await store_harness.advance(10_000)
        assert ids(await scene.claim(authorise=True)) == ["a"]
        await store_harness.advance(5_000)
        job = await scene.job()
        assert (job.state.value, job.seal_attempts, job.reoffer_to) == ("queued", 1, "runner_1")
        assert ids(await scene.claim("runner_2", authorise=True)) == []

    async def test_declined_without_a_mark(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        scene.watch()
        assert await scene.decline(grant)
        await store_harness.delivered()
        assert await scene.decline(grant) is False
        assert _told(scene) == [WorkAvailable(_ROUTE, "llm.generate", Audience.PRIVATE)]
        assert await scene.notice_kinds() == []
        assert ids(await scene.claim(authorise=True)) == ["a"]

    async def test_declined_for_now(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        assert await scene.decline(grant, retry_after_ms=30_000)
        assert ids(await scene.claim(authorise=True)) == []
        other = await scene.claim("runner_2", authorise=True)
        assert ids(other) == ["a"]
        assert await scene.decline(other[0], runner="runner_2", retry_after_ms=30_000)
        await store_harness.advance(29_000)
        assert ids(await scene.claim(authorise=True)) == []
        await store_harness.advance(1_000)
        assert ids(await scene.claim(authorise=True)) == ["a"]

    async def test_declined_for_ever(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        assert await scene.decline(grant, refused=True)
        await store_harness.advance(3_600_000)
        assert ids(await scene.claim()) == []
        assert (await scene.job()).refused_by == ("runner_1",)
        assert await scene.notice_kinds() == []
        assert ids(await scene.claim("runner_2")) == ["a"]

    async def test_declining_a_reservation_for_ever_evicts_in_the_end(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed()
        await store_harness.advance(10_000)
        await scene.claim()
        await store_harness.advance(10_000)
        (grant,) = await scene.claim(authorise=True)
        assert (await scene.job()).seal_attempts == 2
        assert await scene.decline(grant, refused=True)
        assert (await scene.notice(NoticeKind.JOB_ENDED)).end is JobEnd.EVICTED_UNSEALED

    async def test_the_deadline_of_the_job_comes_first(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a", deadline_at_ms=await scene.store.now() + 3_000)
        (grant,) = await scene.claim(authorise=True)
        scene.watch()
        await store_harness.advance(3_500)
        assert await scene.authorise(grant) is None
        await store_harness.delivered()
        assert (await scene.notice(NoticeKind.JOB_ENDED)).end is JobEnd.EXPIRED
        assert _told(scene) == []

    async def test_its_site_may_cancel_it(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.held_back()
        scene.watch()
        assert await scene.store.cancel(SITE, "a")
        await store_harness.delivered()
        assert await scene.state() == "gone"
        assert (await scene.notice(NoticeKind.JOB_ENDED)).end is JobEnd.CANCELLED
        assert _told(scene) == []
        assert await scene.authorise(grant) is None
        assert await scene.decline(grant) is False

    async def test_a_claim_whose_grants_were_all_declined_claims_again(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        (grant,) = await scene.claim(authorise=True, request_id="q")
        await scene.decline(grant, refused=True)
        await scene.enqueue("b")
        assert ids(await scene.claim(authorise=True, request_id="q")) == ["b"]

    async def test_two_sites_are_told_apart(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        await scene.enqueue("a", site=OTHER_SITE)
        routes = [(SITE, "alice"), (OTHER_SITE, "alice")]
        grants = await scene.claim(routes=routes, authorise=True)
        by_site = {grant.site_id: grant for grant in grants}
        assert await scene.decline(by_site[SITE], refused=True)
        assert await scene.authorise(by_site[OTHER_SITE]) is not None
        assert await scene.state("a") == "queued"
        assert await scene.state("a", OTHER_SITE) == "awaiting-payload"


def _told(scene: Scene) -> Sequence[object]:
    """What was said beside the news of inboxes; a holder must have heard nothing."""
    assert not [change for change in scene.changes if isinstance(change, LeaseChanged)]
    return [change for change in scene.changes if not isinstance(change, NoticeAdded)]
