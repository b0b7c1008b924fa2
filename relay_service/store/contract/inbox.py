"""What a site is told, for how long, and how it settles it."""
# ruff: noqa: S101

from relay_service.core.model import (
    Disposition,
    JobEnd,
    JobState,
    NoticeKind,
    ReleaseReason,
    RequeueCause,
)
from relay_service.store.contract.scene import (
    OTHER_SITE,
    SITE,
    Scene,
    StoreHarness,
    device,
    ids,
)

DAY_MS = 86_400_000


class NoticeCases:
    """Each turn of a job is a row, and at most two rows speak of one job."""

    async def test_difference_6_a_claim_asks_to_seal(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        assert await scene.notice_kinds() == []
        (grant,) = await scene.claim()
        row = await scene.notice(NoticeKind.PLEASE_SEAL)
        assert (row.key.site_id, row.key.job_id, row.count) == ("site_store", "a", 1)
        assert row.claim is not None
        assert (row.claim.runner_id, row.claim.lease_id) == ("runner_1", grant.lease_id)
        assert (row.claim.owner, row.claim.device) == ("alice", device())
        assert row.seal_until_ms == grant.awaiting_until_ms

    async def test_difference_6_sealing_settles_it(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.ready("a")
        assert await scene.notice_kinds() == []

    async def test_difference_6_a_result(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        grant = await scene.running("a")
        await scene.complete(grant, ciphertext=b"12345", disposition=Disposition.ERROR)
        row = await scene.notice(NoticeKind.RESULT_READY)
        assert (row.disposition, row.result_bytes, row.seal_until_ms) == (Disposition.ERROR, 5, None)
        assert row.claim is not None
        assert (row.claim.runner_id, row.claim.owner) == ("runner_1", "alice")
        assert (row.claim.lease_id, row.claim.device) == (grant.lease_id, device())

    async def test_difference_6_a_result_replaces_what_was_said_before(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        await scene.release(await scene.claimed("a"))
        (grant,) = await scene.claim()
        assert sorted(await scene.notice_kinds()) == ["job-requeued", "please-seal"]
        await scene.complete(grant)
        assert await scene.notice_kinds() == ["result-ready"]

    async def test_difference_6_expired(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        now_ms = await store_harness.store.now()
        await scene.enqueue("queued", "held", deadline_at_ms=now_ms + 8_000)
        await scene.claim(maximum=1)
        await store_harness.advance(8_000)
        assert await scene.notice_kinds() == ["job-ended", "job-ended"]
        assert (await scene.notice(NoticeKind.JOB_ENDED, "queued")).end is JobEnd.EXPIRED
        assert (await scene.notice(NoticeKind.JOB_ENDED, "held")).end is JobEnd.EXPIRED

    async def test_difference_6_evicted(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        for _ in range(3):
            assert ids(await scene.claim()) == ["a"]
            await store_harness.advance(10_000)
        assert await scene.notice_kinds() == ["job-ended"]
        assert (await scene.notice(NoticeKind.JOB_ENDED)).end is JobEnd.EVICTED_UNSEALED

    async def test_difference_6_cancelled(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.enqueue("unheld")
        await store.cancel(SITE, "unheld")
        assert (await scene.notice(NoticeKind.JOB_ENDED, "unheld")).end is JobEnd.CANCELLED
        grant = await scene.claimed("held")
        await store.cancel(SITE, "held")
        assert await scene.notice_kinds() == ["job-ended"]
        await scene.release(grant)
        assert (await scene.notice(NoticeKind.JOB_ENDED, "held")).end is JobEnd.CANCELLED

    async def test_difference_4_a_cancelled_lapse_is_cancelled(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        await store_harness.store.cancel(SITE, "a")
        await store_harness.advance(10_000)
        assert (await scene.notice(NoticeKind.JOB_ENDED)).end is JobEnd.CANCELLED

    async def test_difference_6_each_requeue_with_its_cause(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.release(await scene.claimed("a"), ReleaseReason.SHUTDOWN)
        assert await self._requeue(scene) == (RequeueCause.RELEASED, 1)
        (grant,) = await scene.claim("runner_2")
        await scene.release(grant, ReleaseReason.REFUSED, runner="runner_2")
        assert await self._requeue(scene) == (RequeueCause.REFUSED, 2)
        (grant,) = await scene.claim(lease_ms=5_000)
        await scene.seal(grant)
        await store_harness.advance(5_000)
        assert await self._requeue(scene) == (RequeueCause.LEASE_LAPSED, 3)
        (grant,) = await scene.claim()
        await scene.seal(grant)
        await scene.release(grant, ReleaseReason.BAD_ENVELOPE)
        assert await self._requeue(scene) == (RequeueCause.BAD_ENVELOPE, 4)
        await scene.claim()
        await store_harness.advance(10_000)
        assert await self._requeue(scene) == (RequeueCause.WINDOW_LAPSED, 5)
        assert await scene.notice_kinds() == ["job-requeued"]

    async def test_difference_6_a_requeue_withdraws_the_request(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.release(await scene.claimed("a"))
        assert await scene.notice_kinds() == ["job-requeued"]

    async def test_rows_are_repeated_until_settled(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.claimed("a")
        first = await scene.notices()
        assert list(await scene.notices()) == list(first)
        assert await scene.notice_kinds(OTHER_SITE) == []

    async def test_rows_are_paged_by_sequence(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.enqueue("a", "b", "c", "d")
        for job_id in ("b", "a", "d", "c"):
            await store.cancel(SITE, job_id)
        rows = await scene.notices()
        sequences = [row.sequence for row in rows]
        assert [row.key.job_id for row in rows] == ["b", "a", "d", "c"]
        assert sequences == sorted(set(sequences))
        page = await store.notices(SITE, sequences[0], 2)
        assert [row.key.job_id for row in page] == ["a", "d"]
        assert list(await store.notices(SITE, sequences[3], 2)) == []
        assert len({row.notice_id for row in rows}) == 4

    async def test_a_replaced_row_is_a_new_row(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.release(await scene.claimed("a"))
        first = await scene.notice(NoticeKind.JOB_REQUEUED)
        await scene.release((await scene.claim())[0])
        second = await scene.notice(NoticeKind.JOB_REQUEUED)
        assert second.sequence > first.sequence
        assert second.notice_id != first.notice_id
        assert list(await store_harness.store.acknowledge(SITE, [], [first.notice_id])) == []
        assert await scene.notice(NoticeKind.JOB_REQUEUED) == second

    async def _requeue(self, scene: Scene) -> tuple[RequeueCause | None, int]:
        row = await scene.notice(NoticeKind.JOB_REQUEUED)
        return row.requeue, row.count


class SettlingCases:
    """A site says what it has safely stored."""

    async def test_difference_7_a_result_is_kept_until_acknowledged(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.done("a")
        for _ in range(2):
            assert [job.key.job_id for job in await store.finished(SITE)] == ["a"]
        assert list(await store.acknowledge(SITE, ["a"])) == ["a"]
        assert list(await store.finished(SITE)) == []
        assert await scene.notice_kinds() == []
        assert await scene.state("a") == "gone"
        assert (await scene.enqueue("a")).state is JobState.QUEUED

    async def test_difference_7_past_the_deadline_of_the_work(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        now_ms = await store_harness.store.now()
        await scene.enqueue("a", deadline_at_ms=now_ms + 20_000)
        await scene.complete((await scene.claim())[0])
        await store_harness.advance(DAY_MS - 1_000)
        assert [job.key.job_id for job in await store_harness.store.finished(SITE)] == ["a"]

    async def test_difference_7_for_a_day(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.done("a")
        await store_harness.advance(DAY_MS)
        swept = await store_harness.store.sweep()
        assert [key.job_id for key in swept.ended] == ["a"]
        assert await scene.state("a") == "gone"
        assert (await scene.notice(NoticeKind.JOB_ENDED)).end is JobEnd.RESULT_DROPPED

    async def test_difference_7_the_oldest_goes_over_the_byte_quota(
        self, store_harness: StoreHarness
    ) -> None:
        scene = Scene(store_harness.store)
        for job_id in ("a", "b", "c"):
            await scene.done(job_id, ciphertext=b"x" * 4_000)
        finished = await store_harness.store.finished(SITE)
        assert [job.key.job_id for job in finished] == ["b", "c"]
        assert (await scene.notice(NoticeKind.JOB_ENDED, "a")).end is JobEnd.RESULT_DROPPED
        # The newest is kept, even one that is over the quota by itself.
        for job_id, size in (("d", 10_000), ("e", 10_001)):
            await scene.done(job_id, ciphertext=b"x" * size)
            finished = await store_harness.store.finished(SITE)
            assert [job.key.job_id for job in finished] == [job_id]

    async def test_difference_7_the_quota_is_each_sites_own(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.done("a", ciphertext=b"x" * 9_000)
        await scene.enqueue("b", site=OTHER_SITE)
        (grant,) = await scene.claim(routes=[(OTHER_SITE, "alice")])
        await scene.complete(grant, ciphertext=b"x" * 9_000)
        assert [job.key.job_id for job in await store_harness.store.finished(SITE)] == ["a"]

    async def test_difference_7_the_oldest_goes_over_the_number(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        for number in range(51):
            await scene.done(f"job-{number}", ciphertext=b"x")
        finished = await store_harness.store.finished(SITE)
        assert len(finished) == 50
        assert finished[0].key.job_id == "job-1"

    async def test_an_acknowledged_result_makes_room(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        for job_id in ("a", "b", "c", "d"):
            await scene.done(job_id, ciphertext=b"x" * 6_000)
            assert list(await store_harness.store.acknowledge(SITE, [job_id])) == [job_id]
        assert await scene.notice_kinds() == []

    async def test_gap_an_acknowledgement_may_be_repeated(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.done("a")
        await scene.enqueue("b")
        await store.cancel(SITE, "b")
        row = await scene.notice(NoticeKind.JOB_ENDED, "b")
        for _ in range(2):
            settled = await store.acknowledge(SITE, ["a", "unknown"], [row.notice_id, "unknown"])
            assert list(settled) == ["a", row.notice_id]

    async def test_unfinished_jobs_cannot_be_settled(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.claimed("a")
        row = await scene.notice(NoticeKind.PLEASE_SEAL)
        assert list(await store.acknowledge(SITE, ["a"], [row.notice_id])) == []
        assert await scene.state("a") == "awaiting-payload"
        assert await scene.notice_kinds() == ["please-seal"]

    async def test_a_result_is_not_settled_by_its_notice(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.done("a")
        row = await scene.notice(NoticeKind.RESULT_READY)
        assert list(await store.acknowledge(SITE, [], [row.notice_id])) == []
        assert await scene.state("a") == "done"
        assert await scene.notice_kinds() == ["result-ready"]

    async def test_another_site_settles_nothing(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.done("a")
        await scene.enqueue("b")
        await store.cancel(SITE, "b")
        row = await scene.notice(NoticeKind.JOB_ENDED, "b")
        assert list(await store.acknowledge(OTHER_SITE, ["a", "b"], [row.notice_id])) == []
        assert sorted(await scene.notice_kinds()) == ["job-ended", "result-ready"]

    async def test_a_requeue_row_is_settled_by_its_id(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.release(await scene.claimed("a"))
        (grant,) = await scene.claim()
        row = await scene.notice(NoticeKind.JOB_REQUEUED)
        assert list(await store_harness.store.acknowledge(SITE, [], [row.notice_id])) == [row.notice_id]
        assert await scene.notice_kinds() == ["please-seal"]
        await scene.release(grant)
        assert (await scene.notice(NoticeKind.JOB_REQUEUED)).count == 1

    async def test_an_ended_job_is_settled_by_either_id(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        store = store_harness.store
        await scene.enqueue("a", "b")
        await store.cancel(SITE, "a")
        await store.cancel(SITE, "b")
        row = await scene.notice(NoticeKind.JOB_ENDED, "b")
        assert list(await store.acknowledge(SITE, ["a"], [row.notice_id])) == ["a", row.notice_id]
        assert await scene.notice_kinds() == []

    async def test_the_word_of_an_end_is_kept_for_a_day(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        await store_harness.store.cancel(SITE, "a")
        await store_harness.advance(DAY_MS - 1_000)
        assert await scene.notice_kinds() == ["job-ended"]
        await store_harness.advance(1_000)
        assert await scene.notice_kinds() == []

    async def test_the_oldest_words_of_ends_go_over_the_number(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        for number in range(201):
            await scene.enqueue(f"job-{number}")
            await store_harness.store.cancel(SITE, f"job-{number}")
        rows = await scene.notices()
        assert len(rows) == 200
        assert rows[0].key.job_id == "job-1"

    async def test_a_new_job_of_the_id_settles_the_end_of_the_old(self, store_harness: StoreHarness) -> None:
        scene = Scene(store_harness.store)
        await scene.enqueue("a")
        await store_harness.store.cancel(SITE, "a")
        await scene.enqueue("a")
        assert await scene.notice_kinds() == []
