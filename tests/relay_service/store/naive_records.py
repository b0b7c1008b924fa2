"""What the naive relay keeps: jobs and rows in plain words and numbers."""

from collections.abc import Iterable
from dataclasses import dataclass, field

UNSEALED = 2
HELD = ("awaiting-payload", "ready", "running")

Name = tuple[str, str]


@dataclass(frozen=True)
class NaiveQuotas:
    unfinished: int
    results: int
    result_bytes: int
    ended_rows: int
    leases: int


@dataclass
class NaiveJob:
    site: str
    job_id: str
    owner: str
    kind: str
    audience: str
    deadline: int
    place: int
    state: str = "queued"
    runner: str | None = None
    lease: str | None = None
    signed: bytes | None = None
    lease_until: int = 0
    window_until: int = 0
    attempts: int = 0
    attempts_before: int = 0
    sticky: str | None = None
    sticky_until: int = 0
    refused: list[str] = field(default_factory=list)
    retry: dict[str, int] = field(default_factory=dict)
    cancelled: bool = False
    cancel_known: bool = False
    payload: bytes | None = None
    result: bytes | None = None
    disposition: str | None = None
    kept_until: int = 0
    done_as: int = 0

    @property
    def name(self) -> Name:
        return (self.site, self.job_id)

    @property
    def route(self) -> Name:
        return (self.site, self.owner)

    @property
    def held(self) -> bool:
        return self.state in HELD

    @property
    def taken(self) -> bool:
        """Held, or won with the policy not heard yet."""
        return self.held or self.state == "authorising"

    def due(self) -> int:
        if self.state == "done":
            return self.kept_until
        clocks = [self.deadline]
        if self.state == "awaiting-payload":
            clocks.append(self.window_until)
        if self.state in ("authorising", "ready", "running"):
            clocks.append(self.lease_until)
        if self.state == "queued":
            clocks.extend(self.retry.values())
            if self.sticky is not None:
                clocks.append(self.sticky_until)
        return min(clocks)


@dataclass
class NaiveRow:
    kind: str
    site: str
    job_id: str
    word: str
    count: int = 1
    written: int = 0


@dataclass
class NaiveBoard:
    """All there is to know, and the questions that one may ask of it."""

    quotas: NaiveQuotas
    now: int
    jobs: list[NaiveJob] = field(default_factory=list)
    rows: list[NaiveRow] = field(default_factory=list)
    rotation: list[Name] = field(default_factory=list)
    past: dict[str, tuple[str, str, str, int]] = field(default_factory=dict)
    settled: dict[tuple[str, str], int] = field(default_factory=dict)
    answers: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    lapses: list[tuple[Name, int]] = field(default_factory=list)
    reported: dict[Name, int] = field(default_factory=dict)
    words: list[tuple[str, ...]] = field(default_factory=list)
    reports: list[tuple[Name, int]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    places: int = 0
    leases: int = 0

    def find(self, site: str, job_id: str) -> NaiveJob | None:
        return next((job for job in self.jobs if job.name == (site, job_id)), None)

    def held_by(self, runner: str) -> list[NaiveJob]:
        return [job for job in self.jobs if job.held and job.runner == runner]

    def resolve(self, runner: str, job_id: str, lease: str) -> NaiveJob | None:
        known = [job for job in self.jobs if job.job_id == job_id and job.state != "authorising"]
        for job in known:
            if job.lease == lease:
                return job
        mine = [job for job in known if job.runner == runner]
        return min(mine, key=lambda job: job.place) if mine else None

    def eligible(self, job: NaiveJob, runner: str, owner: str, kinds: Iterable[str]) -> bool:
        return (
            job.state == "queued"
            and not job.cancelled
            and job.kind in kinds
            and job.sticky in (None, runner)
            and runner not in job.refused
            and job.retry.get(runner, self.now) <= self.now
            and (job.audience == "team" or job.owner == owner)
            and self.unsealed(job.route) < UNSEALED
        )

    def unsealed(self, route: Name) -> int:
        unsealed = ("authorising", "awaiting-payload")
        return sum(job.state in unsealed and job.route == route for job in self.jobs)

    # Small steps that need no rule.

    def _about(self, row: NaiveRow, job: NaiveJob) -> bool:
        return (row.site, row.job_id) == job.name

    def _write(self, job: NaiveJob, kind: str, word: str, count: int = 1) -> None:
        self.written.append(job.site)
        self.rows.append(NaiveRow(kind, job.site, job.job_id, word, count, self.now))

    def _drop_rows(self, job: NaiveJob, *kinds: str) -> None:
        self.rows = [
            row for row in self.rows if not self._about(row, job) or (kinds and row.kind not in kinds)
        ]

    def _withdraw(self, job: NaiveJob) -> None:
        self._drop_rows(job, "please-seal")

    def _rotate(self) -> None:
        """A route has a turn while it has something queued, and begins at the end."""
        queued = [job.route for job in self.jobs if job.state == "queued"]
        self.rotation = [route for route in self.rotation if route in queued]
        for route in queued:
            if route not in self.rotation:
                self.rotation.append(route)
