"""Random histories: the memory store does what the naive relay does, step by step."""

from collections.abc import Iterable
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay_service.core.model import (
    Audience,
    Change,
    ChurnReport,
    Disposition,
    LeaseChanged,
    LeaseRef,
    NoticeAdded,
    Refusal,
    ReleaseReason,
    Route,
    RoutedJob,
    SealedEnvelope,
    WorkAvailable,
)
from relay_service.store.base import ClaimRequest, TooLate
from relay_service.store.memory import MemoryRoutingStore

from .index_check import check_indexes
from .machine_inputs import (
    FAR_MS,
    JOB_IDS,
    KINDS,
    OWNERS,
    QUOTAS,
    ROUTES,
    SITES,
    START_MS,
    answer_of,
    envelope,
    job_ids,
    lease_spans,
    runners,
    short_spans,
    sites,
    spans,
    stub_of,
    unwelcome,
)
from .machine_views import DEVICES, RUNNERS, naive_view, said, same_row, view, word_of
from .naive_relay import NaiveQuotas, NaiveRelay


class MemoryMachine(RuleBasedStateMachine):
    """Both are told the same; what they answer, hold and announce must be equal."""

    def __init__(self) -> None:
        super().__init__()
        leases = count(1)
        self.naive = NaiveRelay(NaiveQuotas(5, 2, 9, 3, 4), START_MS)
        self.store = MemoryRoutingStore(lambda: self.naive.now, lambda: f"lease-{next(leases)}", QUOTAS)
        self.changes: list[Change] = []
        self.store.listen(self.changes.append)
        self.known_leases: list[tuple[str, str, str, str]] = []
        self.advanced = False
        self.claimable: set[tuple[str, int]] = set()

    # Commands.

    @rule(
        site=sites,
        job_id=job_ids,
        owner=st.sampled_from(OWNERS),
        kind=st.sampled_from(KINDS),
        audience=st.sampled_from(Audience),
        span=st.sampled_from((-1, 8_000, 25_000, 90_000, FAR_MS)),
    )
    def enqueue(self, site: str, job_id: str, owner: str, kind: str, audience: Audience, span: int) -> None:
        self._enqueue(site, job_id, owner, kind, audience, span)

    @rule(site=sites, owners=st.lists(st.sampled_from(OWNERS), min_size=5, max_size=5))
    def fill(self, site: str, owners: list[str]) -> None:
        """All jobs of a site, so that there is something to be fair about."""
        for job_id, owner in zip(JOB_IDS, owners, strict=True):
            self._enqueue(site, job_id, owner, "chat", Audience.TEAM, FAR_MS)

    def _enqueue(self, site: str, job_id: str, owner: str, kind: str, audience: Audience, span: int) -> None:
        deadline = self.naive.now + span
        stub = stub_of(job_id, kind, owner, audience, deadline)
        answer = answer_of(self.store.enqueue(site, stub))
        word = answer.value if isinstance(answer, Refusal) else "created" if answer.created else "known"
        assert word == self.naive.enqueue((site, job_id), owner, kind, audience.value, deadline)

    @rule(
        runner=runners,
        routes=st.sets(st.sampled_from(ROUTES), min_size=1),
        kinds=st.sets(st.sampled_from(KINDS), min_size=1),
        maximum=st.integers(0, 4),
        lease_ms=lease_spans,
        request=st.sampled_from((None, None, "q1", "q2")),
        authorise=st.sampled_from((False, False, True)),
    )
    def claim(
        self,
        runner: str,
        routes: set[tuple[str, str]],
        kinds: set[str],
        maximum: int,
        lease_ms: int,
        request: str | None,
        authorise: bool,
    ) -> None:
        self._claim(runner, routes, kinds, maximum, lease_ms, request, authorise)

    @rule(runner=runners, maximum=st.integers(1, 3), lease_ms=lease_spans, authorise=st.booleans())
    def claim_anything(self, runner: str, maximum: int, lease_ms: int, authorise: bool) -> None:
        self._claim(runner, ROUTES, KINDS, maximum, lease_ms, None, authorise)

    def _claim(
        self,
        runner: str,
        routes: Iterable[tuple[str, str]],
        kinds: Iterable[str],
        maximum: int,
        lease_ms: int,
        request: str | None,
        authorise: bool = False,
    ) -> None:
        named = frozenset(Route(*route) for route in routes)
        owner = RUNNERS[runner]
        asked = ClaimRequest(
            *(runner, owner, DEVICES[runner], named, frozenset(kinds), maximum, lease_ms), request, authorise
        )
        grants = answer_of(self.store.claim(asked))
        expected = self.naive.claim((runner, owner), routes, kinds, maximum, lease_ms, request, authorise)
        assert [(grant.site_id, grant.stub.id, grant.lease_id) for grant in grants] == expected
        self.known_leases += [(runner, *grant) for grant in expected]

    @precondition(lambda self: any(job.state == "awaiting-payload" for job in self.naive.jobs))
    @rule(data=st.data(), comes_back=st.booleans())
    def let_a_window_lapse(self, data: st.DataObject, comes_back: bool) -> None:
        """And perhaps its holder claims again in time, which chance alone seldom does."""
        waiting = [job for job in self.naive.jobs if job.state == "awaiting-payload"]
        job = waiting[data.draw(st.integers(0, len(waiting) - 1))]
        self.naive.now = max(self.naive.now, job.window_until)
        self.advanced = True
        if comes_back and job.runner is not None:
            self._claim(job.runner, [job.route], KINDS, 2, 60_000, None)

    @precondition(lambda self: self.known_leases)
    @rule(data=st.data(), signed=st.binary(max_size=3), lease_ms=lease_spans)
    def authorise(self, data: st.DataObject, signed: bytes, lease_ms: int) -> None:
        runner, _, job_id, lease = self._won(data)
        answer = answer_of(self.store.authorise_grant(runner, LeaseRef(job_id, lease), signed, lease_ms))
        expected = self.naive.authorise(runner, job_id, lease, signed, lease_ms)
        assert (answer and (answer.signed_grant or b"", answer.held_back)) == (
            None if expected is None else (expected, False)
        )

    @precondition(lambda self: self.known_leases)
    @rule(
        data=st.data(),
        refused=st.sampled_from((False, False, True)),
        retry=st.sampled_from((None, None, 0, 5_000, 30_000)),
    )
    def decline(self, data: st.DataObject, refused: bool, retry: int | None) -> None:
        runner, _, job_id, lease = self._won(data)
        ref = LeaseRef(job_id, lease)
        answer = answer_of(self.store.decline_grant(runner, ref, refused=refused, retry_after_ms=retry))
        assert answer is self.naive.decline(runner, job_id, lease, refused, retry)

    def _won(self, data: st.DataObject) -> tuple[str, str, str, str]:
        """A lease whose grant is held back, when there is one; any other now and then."""
        asked = {job.lease for job in self.naive.jobs if job.state == "authorising"}
        won = [grant for grant in self.known_leases if grant[3] in asked]
        if won and data.draw(st.sampled_from((True,) * 7 + (False,))):
            return data.draw(st.sampled_from(won))
        return self._lease(data, stranger=True)

    @precondition(lambda self: self.known_leases)
    @rule(data=st.data())
    def hand_over(self, data: st.DataObject) -> None:
        """Seals and takes in one go, which chance alone seldom does in time."""
        runner, site, job_id, lease = self._lease(data)
        key_id = DEVICES[runner].key_id
        answer = answer_of(self.store.seal(site, LeaseRef(job_id, lease), key_id, envelope(b"payload")))
        expected = self.naive.seal((site, job_id), lease, runner)
        assert isinstance(answer, RoutedJob) is (expected == "sealed")
        taken = answer_of(self.store.take_payload(runner, LeaseRef(job_id, lease)))
        assert isinstance(taken, SealedEnvelope) is (self.naive.take(runner, job_id, lease) == "payload")

    @precondition(lambda self: self.known_leases)
    @rule(data=st.data(), right_device=st.sampled_from((True, True, True, False)))
    def seal(self, data: st.DataObject, right_device: bool) -> None:
        runner, site, job_id, lease = self._lease(data)
        recipient = runner if right_device else "nobody"
        key_id = DEVICES[recipient].key_id
        answer = answer_of(self.store.seal(site, LeaseRef(job_id, lease), key_id, envelope(b"payload")))
        word = answer.refusal.value if isinstance(answer, TooLate) else "sealed"
        assert word == self.naive.seal((site, job_id), lease, recipient)

    @precondition(lambda self: self.known_leases)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        runner, _, job_id, lease = self._lease(data, stranger=True)
        answer = answer_of(self.store.take_payload(runner, LeaseRef(job_id, lease)))
        word = answer.value if isinstance(answer, Refusal) else answer.ciphertext.decode()
        assert word == self.naive.take(runner, job_id, lease)

    @precondition(lambda self: self.known_leases)
    @rule(data=st.data(), result=st.binary(max_size=6), disposition=st.sampled_from(Disposition))
    def complete(self, data: st.DataObject, result: bytes, disposition: Disposition) -> None:
        runner, _, job_id, lease = self._lease(data, stranger=True)
        ref = LeaseRef(job_id, lease)
        answer = answer_of(self.store.complete(runner, ref, envelope(result), disposition))
        if isinstance(answer, Refusal):
            word = answer.value
        else:
            assert answer.accepted is not answer.duplicate
            word = "accepted" if answer.accepted else "duplicate"
        assert word == self.naive.complete(runner, job_id, lease, result)

    @precondition(lambda self: self.known_leases)
    @rule(
        data=st.data(),
        reason=st.sampled_from(ReleaseReason) | unwelcome,
        retry=st.sampled_from((None, None, -1, 0, 5_000, 30_000)),
    )
    def release(self, data: st.DataObject, reason: ReleaseReason, retry: int | None) -> None:
        runner, _, job_id, lease = self._lease(data, stranger=True)
        ref = LeaseRef(job_id, lease)
        answer = answer_of(self.store.release_leases(runner, [ref], reason, retry))
        expected = [job_id] if self.naive.release(runner, job_id, lease, reason.value, retry) else []
        assert list(answer) == expected

    @precondition(lambda self: self.known_leases)
    @rule(data=st.data(), lease_ms=lease_spans)
    def renew(self, data: st.DataObject, lease_ms: int) -> None:
        runner, _, job_id, lease = self._lease(data, stranger=True)
        ref = LeaseRef(job_id, lease)
        first, second = answer_of(self.store.renew_leases(runner, [ref, ref], lease_ms))
        expected = self.naive.renew(runner, job_id, lease, lease_ms)
        for verdict in (first, second):
            assert (verdict.state.value, verdict.end and verdict.end.value) == expected

    @rule(site=sites, job_id=job_ids)
    def cancel(self, site: str, job_id: str) -> None:
        assert answer_of(self.store.cancel(site, job_id)) is self.naive.cancel((site, job_id))

    @precondition(lambda self: self.known_leases)
    @rule(data=st.data())
    def acknowledge_cancel(self, data: st.DataObject) -> None:
        runner, _, job_id, lease = self._lease(data, stranger=True)
        answer_of(self.store.acknowledge_cancels(runner, [LeaseRef(job_id, lease)]))
        self.naive.acknowledge_cancel(runner, job_id, lease)

    @rule(site=sites, job_id=job_ids)
    def acknowledge_job(self, site: str, job_id: str) -> None:
        expected = [job_id] if self.naive.acknowledge_job((site, job_id)) else []
        assert list(answer_of(self.store.acknowledge(site, [job_id]))) == expected

    @precondition(lambda self: self.naive.rows)
    @rule(data=st.data())
    def acknowledge_row(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.naive.rows))
        notices = answer_of(self.store.notices(row.site, 0, 1_000))
        mine = [notice for notice in notices if same_row(notice, row)]
        if not mine:
            assert self.naive.acknowledge_row(row) is False
            return
        expected = [mine[0].notice_id] if self.naive.acknowledge_row(row) else []
        for _ in range(2):
            assert list(answer_of(self.store.acknowledge(row.site, [], [mine[0].notice_id]))) == expected

    @rule(span=short_spans | short_spans | short_spans | spans)
    def advance(self, span: int) -> None:
        self.naive.now += span
        self.advanced = True

    @rule()
    def sweep(self) -> None:
        swept = answer_of(self.store.sweep())
        requeued, ended = self.naive.pass_time()
        assert [(key.site_id, key.job_id) for key in swept.requeued] == requeued
        assert [(key.site_id, key.job_id) for key in swept.ended] == ended

    def _lease(self, data: st.DataObject, *, stranger: bool = False) -> tuple[str, str, str, str]:
        """A lease that was granted at some time; now and then the wrong runner or job names it."""
        held = {job.lease for job in self.naive.jobs if job.held}
        live = [grant for grant in self.known_leases if grant[3] in held]
        old = self.known_leases[-6:]
        source = live if live and data.draw(st.sampled_from((True,) * 5 + (False,))) else old
        runner, site, job_id, lease = data.draw(st.sampled_from(source))
        if stranger and data.draw(st.sampled_from((False,) * 7 + (True,))):
            runner = data.draw(runners)
        if data.draw(st.sampled_from((False,) * 15 + (True,))):
            job_id = data.draw(job_ids)
        return runner, site, job_id, lease

    # What must be equal after every step.

    @invariant()
    def they_are_equal(self) -> None:
        # Looking lets time pass; after a mere advance the next command is to find what is due.
        if self.advanced:
            self.advanced = False
            return
        self.naive.pass_time()
        self.the_same_jobs()
        self.the_same_holdings()
        self.the_same_notices()
        self.the_same_words()
        self.the_caps_hold()
        self.the_next_instant_is_true()
        check_indexes(self.store)

    def the_same_jobs(self) -> None:
        jobs = answer_of(self.store.jobs())
        assert {view(job) for job in jobs} == {naive_view(job) for job in self.naive.jobs}
        for site in SITES:
            waiting = [job.key.job_id for job in answer_of(self.store.awaiting(site))]
            assert sorted(waiting) == sorted(
                job.job_id
                for job in self.naive.jobs
                if job.site == site and job.state == "awaiting-payload" and not job.cancelled
            )
            finished = [job.key.job_id for job in answer_of(self.store.finished(site))]
            done = [job for job in self.naive.jobs if job.site == site and job.state == "done"]
            assert finished == [job.job_id for job in sorted(done, key=lambda job: job.done_as)]

    def the_same_holdings(self) -> None:
        for runner in RUNNERS:
            held = answer_of(self.store.held(runner))
            expected = self.naive.held_by(runner)
            assert sorted(grant.lease_id for grant in held) == sorted(job.lease or "" for job in expected)
            told = answer_of(self.store.cancel_requests(runner))
            unaware = [job for job in expected if job.cancelled and not job.cancel_known]
            assert sorted(ref.lease_id for ref in told) == sorted(job.lease or "" for job in unaware)

    def the_same_notices(self) -> None:
        for site in SITES:
            notices = answer_of(self.store.notices(site, 0, 1_000))
            rows = [row for row in self.naive.rows if row.site == site]
            assert [said(notice) for notice in notices] == [
                (row.kind, row.job_id, row.word, row.count) for row in rows
            ]
            for at, notice in enumerate(notices):
                rest = answer_of(self.store.notices(site, notice.sequence, 1))
                assert list(rest) == list(notices[at + 1 : at + 2])

    def the_same_words(self) -> None:
        told = [word_of(change) for change in self.changes if isinstance(change, LeaseChanged)]
        assert told == self.naive.words
        reports = [change for change in self.changes if isinstance(change, ChurnReport)]
        assert [((said.route.site_id, said.route.owner), said.expiries) for said in reports] == (
            self.naive.reports
        )
        rows = [change.site_id for change in self.changes if isinstance(change, NoticeAdded)]
        assert sorted(rows) == sorted(self.naive.written)
        self._every_opening_was_announced()
        self.changes.clear()
        self.naive.words.clear()
        self.naive.reports.clear()
        self.naive.written.clear()

    def _every_opening_was_announced(self) -> None:
        openings = [change for change in self.changes if isinstance(change, WorkAvailable)]
        now_claimable = set()
        for runner, owner in RUNNERS.items():
            for job in self.naive.jobs:
                if not self.naive.eligible(job, runner, owner, KINDS):
                    continue
                now_claimable.add((runner, job.place))
                if (runner, job.place) not in self.claimable:
                    assert any(
                        said.route == Route(*job.route)
                        and (said.kind, said.audience.value) == (job.kind, job.audience)
                        and said.only_runner in {None, runner}
                        for said in openings
                    )
        self.claimable = now_claimable

    def the_caps_hold(self) -> None:
        jobs = answer_of(self.store.jobs())
        for site, owner in ROUTES:
            route = Route(site, owner)
            unsealed = {"authorising", "awaiting-payload"}
            assert sum(job.route == route and job.state.value in unsealed for job in jobs) <= 2
        for runner in RUNNERS:
            assert len(answer_of(self.store.held(runner))) <= 4

    def the_next_instant_is_true(self) -> None:
        due = answer_of(self.store.next_due_ms())
        ends = [row.written + 86_400_000 for row in self.naive.rows if row.kind == "job-ended"]
        instants = [job.due() for job in self.naive.jobs] + ends
        assert due == (min(instants) if instants else None)


MemoryMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestMemoryMachine = MemoryMachine.TestCase
