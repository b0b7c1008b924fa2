"""The relay as one would write it first: lists, loops and no index. Slow, short and easy to believe.

It is written from the rules, not from the store, and speaks in plain words and tuples.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .naive_records import NaiveBoard, NaiveJob, NaiveQuotas, NaiveRow, Name

__all__ = ["DAY_MS", "NaiveJob", "NaiveQuotas", "NaiveRelay", "NaiveRow", "Name"]

WINDOW_MS = 10_000
ATTEMPTS = 3
DAY_MS = 86_400_000


@dataclass
class NaiveRelay(NaiveBoard):
    """The model. `now` is moved by the test; every operation lets time pass first."""

    # What time does.

    def pass_time(self) -> tuple[list[Name], list[Name]]:
        requeued: list[Name] = []
        ended: list[Name] = []
        while True:
            due = [job for job in self.jobs if job.due() <= self.now]
            if not due:
                break
            job = min(due, key=lambda job: (job.due(), job.place))
            was_taken = job.taken
            self._lapse(job)
            if job not in self.jobs:
                ended.append(job.name)
            elif was_taken:
                requeued.append(job.name)
            self._rotate()
        self.rows = [row for row in self.rows if row.kind != "job-ended" or row.written + DAY_MS > self.now]
        return requeued, ended

    def _lapse(self, job: NaiveJob) -> None:
        if job.state == "done":
            self._close(job, "completed")
            self._end(job, "result-dropped")
        elif job.deadline <= self.now:
            self._lose(job, "deadline-passed")
            if job.state == "authorising":
                self._close(job, "deadline-passed")
            self._end(job, "cancelled" if job.cancelled else "expired")
        elif job.state == "authorising":
            self._take_back(job)
        elif job.held and job.cancelled:
            self._lose(job, "cancelled")
            self._end(job, "cancelled")
        elif job.state == "awaiting-payload":
            self._lose(job, "window-lapsed")
            self._waste(job, "window-lapsed", job.attempts + 1)
        elif job.held:
            self._lose(job, "expired")
            self._requeue(job, "lease-lapsed")
        else:
            self._wait(job)

    def _wait(self, job: NaiveJob) -> None:
        job.retry = {runner: until for runner, until in job.retry.items() if until > self.now}
        if job.sticky is not None and job.sticky_until <= self.now:
            job.attempts += 1
            job.sticky_until = self.now + WINDOW_MS
            if job.attempts >= ATTEMPTS:
                self._end(job, "evicted-unsealed")

    # Small steps.

    def _lose(self, job: NaiveJob, why: str) -> None:
        """The holder loses the lease by no act of its own."""
        if job.held:
            why = "cancelled" if job.cancelled else why
            self._close(job, why)
            self.words.append(("end", job.runner or "", job.job_id, job.lease or "", why))

    def _close(self, job: NaiveJob, why: str) -> None:
        if job.lease is not None:
            self.past[job.lease] = (job.runner or "", job.job_id, why, self.now + 600_000)

    def _waste(self, job: NaiveJob, cause: str, attempts: int) -> None:
        self._churn(job.route)
        job.attempts = attempts
        if attempts >= ATTEMPTS:
            self._end(job, "evicted-unsealed")
        else:
            job.sticky = job.sticky or job.runner
            self._requeue(job, cause)

    def _churn(self, route: Name) -> None:
        self.lapses.append((route, self.now))
        recent = sum(who == route and at >= self.now - 300_000 for who, at in self.lapses)
        last = self.reported.get(route)
        if recent >= 6 and (last is None or last <= self.now - 3_600_000):
            self.reported[route] = self.now
            self.reports.append((route, recent))

    def _take_back(self, job: NaiveJob) -> None:
        self._close(job, "released")
        self._queue(job)

    def _queue(self, job: NaiveJob) -> None:
        job.state = "queued"
        job.runner = job.lease = job.signed = job.payload = None
        job.attempts_before = 0
        job.retry = {runner: until for runner, until in job.retry.items() if until > self.now}
        job.sticky_until = self.now + WINDOW_MS

    def _requeue(self, job: NaiveJob, cause: str) -> None:
        self._queue(job)
        self._withdraw(job)
        counts = [row.count for row in self.rows if self._about(row, job) and row.kind == "job-requeued"]
        self._drop_rows(job, "job-requeued")
        self._write(job, "job-requeued", cause, sum(counts) + 1)

    def _end(self, job: NaiveJob, why: str) -> None:
        self.jobs.remove(job)
        self._drop_rows(job)
        self._write(job, "job-ended", why)
        ended = [row for row in self.rows if row.kind == "job-ended" and row.site == job.site]
        for row in ended[: -self.quotas.ended_rows]:
            self.rows.remove(row)

    # What callers do.

    def enqueue(self, name: Name, owner: str, kind: str, audience: str, deadline: int) -> str:
        self.pass_time()
        if self.find(*name):
            return "known"
        unfinished = [job for job in self.jobs if job.site == name[0] and job.state != "done"]
        if len(unfinished) >= self.quotas.unfinished:
            return "quota-exceeded"
        self.places += 1
        job = NaiveJob(*name, owner, kind, audience, deadline, self.places)
        self._drop_rows(job)
        self.settled.pop(("job " + name[0], name[1]), None)
        self.jobs.append(job)
        self._rotate()
        return "created"

    def claim(
        self,
        who: tuple[str, str],
        routes: Iterable[Name],
        kinds: Iterable[str],
        maximum: int,
        lease_ms: int,
        request: str | None,
        authorise: bool = False,
    ) -> list[tuple[str, str, str]]:
        self.pass_time()
        runner, owner = who
        if request is not None and (again := self._answered(runner, request)):
            return again
        granted: list[NaiveJob] = []
        while len(granted) < maximum and self._taken_by(runner) < self.quotas.leases:
            job = self._next(runner, owner, routes, kinds)
            if job is None:
                break
            self._win(job, runner)
            if not authorise:
                self._grant(job, lease_ms)
            self._rotate()
            granted.append(job)
        if request is not None and granted:
            self.answers[runner, request] = [job.lease or "" for job in granted]
        return [(job.site, job.job_id, job.lease or "") for job in granted]

    def _taken_by(self, runner: str) -> int:
        return sum(job.taken and job.runner == runner for job in self.jobs)

    def _answered(self, runner: str, request: str) -> list[tuple[str, str, str]]:
        leases = self.answers.get((runner, request), [])
        still = [job for lease in leases for job in self.jobs if job.lease == lease and job.taken]
        return [(job.site, job.job_id, job.lease or "") for job in still if not job.cancelled]

    def _next(self, runner: str, owner: str, routes: Iterable[Name], kinds: Iterable[str]) -> NaiveJob | None:
        for route in self.rotation:
            mine = [job for job in self.jobs if job.route == route and route in routes]
            mine = [job for job in mine if self.eligible(job, runner, owner, kinds)]
            if mine:
                self.rotation.remove(route)
                self.rotation.append(route)
                return min(mine, key=lambda job: job.place)
        return None

    def _win(self, job: NaiveJob, runner: str) -> None:
        self.leases += 1
        job.state = "authorising"
        job.runner, job.lease = runner, f"lease-{self.leases}"
        job.lease_until = self.now + 5_000

    def _grant(self, job: NaiveJob, lease_ms: int) -> None:
        job.state = "awaiting-payload"
        job.lease_until = self.now + lease_ms
        job.window_until = self.now + WINDOW_MS
        self._drop_rows(job, "please-seal", "result-ready", "job-ended")
        self._write(job, "please-seal", job.lease or "")

    def _won(self, runner: str, job_id: str, lease: str) -> NaiveJob | None:
        named = (runner, job_id, lease)
        return next((job for job in self.jobs if (job.runner, job.job_id, job.lease) == named), None)

    def authorise(self, runner: str, job_id: str, lease: str, signed: bytes, lease_ms: int) -> bytes | None:
        self.pass_time()
        job = self._won(runner, job_id, lease)
        if job is not None and job.state == "authorising":
            job.signed = signed
            self._grant(job, lease_ms)
        elif job is None or not job.held or job.cancelled:
            return None
        return job.signed or b""

    def decline(self, runner: str, job_id: str, lease: str, refused: bool, retry: int | None) -> bool:
        self.pass_time()
        job = self._won(runner, job_id, lease)
        if job is None or job.state != "authorising":
            return False
        self._close(job, "released")
        if retry is not None:
            job.retry.pop(runner, None)
            if retry > 0:
                job.retry[runner] = self.now + retry
        if refused and self._refuses(job, runner):
            self._end(job, "evicted-unsealed")
        else:
            self._queue(job)
        self._rotate()
        return True

    def seal(self, name: Name, lease: str, recipient: str) -> str:
        self.pass_time()
        job = self.find(*name)
        if job is None:
            return "not-found"
        if job.cancelled and job.state != "done":
            return "cancelled"
        if job.state in ("queued", "authorising"):
            return "stale-lease"
        if job.state != "awaiting-payload":
            return "too-late"
        if job.lease != lease:
            return "stale-lease"
        if job.runner != recipient:
            return "wrong-recipient"
        job.state, job.payload = "ready", b"payload"
        job.attempts_before, job.attempts = job.attempts, 0
        self._withdraw(job)
        self.words.append(("payload", job.runner, job.job_id, lease))
        return "sealed"

    def _barred(self, job: NaiveJob | None, runner: str, lease: str) -> str | None:
        if job is None or job.runner is None:
            return "not-found"
        if job.runner != runner:
            return "not-holder"
        return None if job.lease == lease else "stale-lease"

    def take(self, runner: str, job_id: str, lease: str) -> str:
        self.pass_time()
        job = self.resolve(runner, job_id, lease)
        if (barred := self._barred(job, runner, lease)) or job is None:
            return barred or "not-found"
        if job.state == "done":
            return "terminal"
        if job.cancelled:
            return "cancelled"
        if job.state == "awaiting-payload":
            return "not-ready"
        if job.state == "ready":
            job.state, job.sticky = "running", None
        return "payload"

    def complete(self, runner: str, job_id: str, lease: str, result: bytes) -> str:
        self.pass_time()
        job = self.resolve(runner, job_id, lease)
        if (barred := self._barred(job, runner, lease)) or job is None:
            known = self._past(runner, job_id, lease)
            return "duplicate" if barred == "not-found" and known == "completed" else barred or "not-found"
        if job.state == "done":
            return "duplicate"
        self.places += 1
        job.state, job.result, job.payload, job.done_as = "done", result, None, self.places
        job.kept_until = self.now + DAY_MS
        self._drop_rows(job)
        self._write(job, "result-ready", str(len(result)))
        self._make_room(job.site)
        return "accepted"

    def _make_room(self, site: str) -> None:
        while True:
            done = [job for job in self.jobs if job.site == site and job.state == "done"]
            size = sum(len(job.result or b"") for job in done)
            if len(done) <= 1 or (len(done) <= self.quotas.results and size <= self.quotas.result_bytes):
                return
            oldest = min(done, key=lambda job: job.done_as)
            self._close(oldest, "completed")
            self._end(oldest, "result-dropped")

    def release(self, runner: str, job_id: str, lease: str, reason: str, retry: int | None) -> bool:
        self.pass_time()
        job = self.resolve(runner, job_id, lease)
        if self._barred(job, runner, lease) or job is None or job.state == "done":
            return False
        self._close(job, "released")
        if job.cancelled:
            self._end(job, "cancelled")
            return True
        if retry is not None:
            job.retry.pop(runner, None)
            if retry > 0:
                job.retry[runner] = self.now + retry
        if reason == "bad-envelope" and job.state != "awaiting-payload":
            self._waste(job, "bad-envelope", job.attempts_before + 1)
        elif reason == "refused":
            self._refuse(job, runner)
        else:
            self._requeue(job, "released")
        self._rotate()
        return True

    def _refuses(self, job: NaiveJob, runner: str) -> bool:
        """Notes a refusal; True when it is the last that the job can bear."""
        if runner not in job.refused:
            job.refused.append(runner)
        if job.sticky == runner:
            job.attempts += 1
        return job.sticky == runner and job.attempts >= ATTEMPTS

    def _refuse(self, job: NaiveJob, runner: str) -> None:
        if self._refuses(job, runner):
            self._end(job, "evicted-unsealed")
        else:
            self._requeue(job, "refused")

    def renew(self, runner: str, job_id: str, lease: str, lease_ms: int) -> tuple[str, str | None]:
        self.pass_time()
        job = next((job for job in self.jobs if job.lease == lease and job.job_id == job_id), None)
        if job is None:
            end = self._past(runner, job_id, lease)
            return ("completed", None) if end == "completed" else ("lost", end)
        if job.runner != runner or job.state == "authorising":
            return "lost", None
        if job.state == "done":
            return "completed", None
        job.lease_until = self.now + lease_ms
        return ("cancel-requested" if job.cancelled else "active"), None

    def _past(self, runner: str, job_id: str, lease: str) -> str | None:
        who, what, end, until = self.past.get(lease, ("", "", "", 0))
        return end if (who, what) == (runner, job_id) and until > self.now else None

    def cancel(self, name: Name) -> bool:
        self.pass_time()
        job = self.find(*name)
        if job is None:
            return False
        if job.state in ("queued", "authorising"):
            self._close(job, "cancelled")
            self._end(job, "cancelled")
            self._rotate()
        elif job.held and not job.cancelled:
            job.cancelled = True
            self._withdraw(job)
            self.words.append(("cancel", job.runner or "", job.job_id, job.lease or ""))
        return True

    def acknowledge_cancel(self, runner: str, job_id: str, lease: str) -> None:
        self.pass_time()
        job = self.resolve(runner, job_id, lease)
        if job is not None and not self._barred(job, runner, lease) and job.held and job.cancelled:
            job.cancel_known = True

    def acknowledge_job(self, name: Name) -> bool:
        self.pass_time()
        memory = ("job " + name[0], name[1])
        job = self.find(*name)
        ended = [row for row in self.rows if (row.site, row.job_id) == name and row.kind == "job-ended"]
        if job is not None and job.state == "done":
            self._close(job, "completed")
            self.jobs.remove(job)
            self._drop_rows(job)
        elif ended:
            self.rows.remove(ended[0])
        else:
            return job is None and self.settled.get(memory, 0) > self.now
        self.settled[memory] = self.now + 120_000
        return True

    def acknowledge_row(self, row: NaiveRow) -> bool:
        self.pass_time()
        if row not in self.rows or row.kind not in ("job-ended", "job-requeued"):
            return False
        self.rows.remove(row)
        return True
