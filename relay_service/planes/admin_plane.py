"""What an operator may see of a running relay: convert, call, convert."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, TypeVar

import grpc.aio

from relay_service.core.model import ChurnReport, JobState, RoutedJob
from relay_service.core.projection import ProjectedDevice, ProjectedSite, Projection
from relay_service.planes import convert, refusals
from relay_service.planes.validation import Checks
from relay_service.sessions.daemon_session import DaemonSession
from relay_service.sessions.site_session import SiteSession
from relay_service.store.base import RoutingStore
from sealwork.relay.v1 import admin_pb2, admin_pb2_grpc, job_pb2
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.drain import draining_error
from service_common.sessions.registry import SessionRegistry

SERVICE = "sealwork.relay.v1.RelayAdminService"

_DEFAULT_PAGE = 100
_MOST_A_PAGE = 500
_STATE_FILTERS = frozenset({job_pb2.JOB_STATE_UNSPECIFIED, *convert.JOB_STATES.values()})

Context = grpc.aio.ServicerContext[Any, Any]
Row = TypeVar("Row")


class WatchedRelay(Protocol):
    """What an operator looks at."""

    @property
    def store(self) -> RoutingStore:
        """Jobs, leases and inboxes."""

    @property
    def daemons(self) -> SessionRegistry[DaemonSession]:
        """Streams of devices."""

    @property
    def sites(self) -> SessionRegistry[SiteSession]:
        """Streams of sites."""

    @property
    def leaving(self) -> asyncio.Event:
        """Set when the relay begins to shut down."""

    def projection(self) -> Projection:
        """The operator's decisions as they stand now."""


class ProjectionHealth(Protocol):
    """Whether the last projection offered could be used."""

    @property
    def broken(self) -> bool:
        """The last one could not, so the one before is in force."""


class AdminPlane(admin_pb2_grpc.RelayAdminServiceServicer):
    """Serves the operator."""

    def __init__(self, relay: WatchedRelay, health: ProjectionHealth, clock: Clock, instance: str) -> None:
        self._relay = relay
        self._health = health
        self._clock = clock
        self._instance = instance
        self._started = clock.monotonic()

    async def GetStats(
        self, request: admin_pb2.GetStatsRequest, context: Context
    ) -> admin_pb2.GetStatsResponse:
        """Counts of this replica."""
        return admin_pb2.GetStatsResponse(stats=await self._stats())

    async def ListJobs(
        self, request: admin_pb2.ListJobsRequest, context: Context
    ) -> admin_pb2.ListJobsResponse:
        """Jobs, oldest first."""
        checks = Checks()
        checks.label("site_id", request.site_id)
        if request.state not in _STATE_FILTERS:
            checks.fault("state", "must be one of the named states, or unspecified for all")
        checks.raise_faults()
        start, size = _page(request.page_token, request.page_size)
        jobs = [
            job
            for job in sorted(await self._relay.store.jobs(), key=lambda job: job.sequence)
            if request.site_id in ("", job.key.site_id)
            and request.state in (job_pb2.JOB_STATE_UNSPECIFIED, convert.JOB_STATES[job.state])
        ]
        page, token = _cut(jobs, start, size)
        return admin_pb2.ListJobsResponse(jobs=map(_job_summary, page), next_page_token=token)

    async def ListDaemons(
        self, request: admin_pb2.ListDaemonsRequest, context: Context
    ) -> admin_pb2.ListDaemonsResponse:
        """Devices of the projection, with what is known of each."""
        start, size = _page(request.page_token, request.page_size)
        page, token = _cut(self._relay.projection().devices, start, size)
        daemons = [await self._daemon_summary(device) for device in page]
        return admin_pb2.ListDaemonsResponse(daemons=daemons, next_page_token=token)

    async def ListSites(
        self, request: admin_pb2.ListSitesRequest, context: Context
    ) -> admin_pb2.ListSitesResponse:
        """Sites of the projection, with what is known of each."""
        start, size = _page(request.page_token, request.page_size)
        page, token = _cut(self._relay.projection().sites, start, size)
        unfinished = Counter(
            job.key.site_id for job in await self._relay.store.jobs() if job.state is not JobState.DONE
        )
        sites = [await self._site_summary(site, unfinished[site.site_id]) for site in page]
        return admin_pb2.ListSitesResponse(sites=sites, next_page_token=token)

    async def ListChurnReports(
        self, request: admin_pb2.ListChurnReportsRequest, context: Context
    ) -> admin_pb2.ListChurnReportsResponse:
        """What was noticed of sites that let their windows lapse."""
        start, size = _page(request.page_token, request.page_size)
        page, token = _cut(await self._relay.store.churn_reports(), start, size)
        return admin_pb2.ListChurnReportsResponse(reports=map(_churn_report, page), next_page_token=token)

    async def Watch(
        self, request: admin_pb2.RelayAdminServiceWatchRequest, context: Context
    ) -> AsyncIterator[admin_pb2.RelayAdminServiceWatchResponse]:
        """The counts, again and again."""
        period_ms = 1_000
        if request.HasField("period"):
            checks = Checks()
            checks.span("period", request.period, 200, 15_000)
            checks.raise_faults()
            period_ms = convert.milliseconds_of_duration(request.period)
        leaving = self._relay.leaving
        while not leaving.is_set():
            yield admin_pb2.RelayAdminServiceWatchResponse(stats=await self._stats())
            with suppress(TimeoutError):
                await within(self._clock, period_ms / 1000, leaving.wait())
        raise draining_error()

    async def _stats(self) -> admin_pb2.RelayStats:
        jobs = await self._relay.store.jobs()
        states = Counter(job.state for job in jobs)
        projection = self._relay.projection()
        stats = admin_pb2.RelayStats(
            server_instance=self._instance,
            version=_version(),
            uptime=convert.duration_of(int((self._clock.monotonic() - self._started) * 1000)),
            daemon_sessions=len(self._relay.daemons),
            site_sessions=len(self._relay.sites),
            queued_jobs=states[JobState.QUEUED] + states[JobState.AUTHORISING],
            awaiting_jobs=states[JobState.AWAITING_PAYLOAD],
            running_jobs=states[JobState.READY] + states[JobState.RUNNING],
            done_jobs=states[JobState.DONE],
            projection_revision=projection.revision,
            projection_broken=self._health.broken,
        )
        oldest_ms = await self._relay.store.oldest_queued_ms()
        if oldest_ms is not None:
            age_ms = max(0, await self._relay.store.now() - oldest_ms)
            stats.oldest_queued.CopyFrom(convert.duration_of(age_ms))
        return stats

    async def _daemon_summary(self, device: ProjectedDevice) -> admin_pb2.DaemonSummary:
        summary = admin_pb2.DaemonSummary(
            runner_id=device.runner_id,
            owner=device.owner,
            key_id=device.identity.key_id,
            revoked=device.revoked,
            leases=len(await self._relay.store.held(device.runner_id)),
        )
        presence = await self._relay.store.presence(device.runner_id)
        if presence is not None:
            summary.last_seen_time.CopyFrom(convert.timestamp_of(presence.last_seen_at_ms))
            summary.matrix.extend(map(convert.capability_to_proto, presence.capabilities))
        for session in self._relay.daemons.of(device.runner_id):
            summary.connected = True
            summary.client_version = session.client_version
            summary.credit = max(0, session.free)
        return summary

    async def _site_summary(self, site: ProjectedSite, unfinished: int) -> admin_pb2.SiteSummary:
        return admin_pb2.SiteSummary(
            site_id=site.site_id,
            key_id=site.identity.key_id,
            sessions=len(self._relay.sites.of(site.site_id)),
            unfinished_jobs=unfinished,
            unsettled_notices=await self._unsettled(site.site_id),
        )

    async def _unsettled(self, site_id: str) -> int:
        count = after = 0
        while rows := await self._relay.store.notices(site_id, after, _MOST_A_PAGE):
            count += len(rows)
            after = rows[-1].sequence
        return count


def _job_summary(job: RoutedJob) -> admin_pb2.JobSummary:
    return admin_pb2.JobSummary(
        site_id=job.key.site_id,
        stub=convert.stub_to_proto(job.stub),
        state=convert.JOB_STATES[job.state],
        runner_id=None if job.claim is None else job.claim.runner_id,
        cancelled=job.cancelled,
        payload_bytes=0 if job.payload is None else len(job.payload.ciphertext),
        result_bytes=0 if job.result is None else len(job.result.ciphertext),
        seal_attempts=job.seal_attempts,
    )


def _churn_report(report: ChurnReport) -> admin_pb2.ChurnReport:
    return admin_pb2.ChurnReport(
        site_id=report.route.site_id,
        owner=report.route.owner,
        expiries=report.expiries,
        window=convert.duration_of(report.window_ms),
        report_time=convert.timestamp_of(report.at_ms),
    )


def _page(token: str, size: int) -> tuple[int, int]:
    """Where a page starts and how long it is."""
    checks = Checks()
    checks.count("page_size", size, 0, _MOST_A_PAGE)
    checks.raise_faults()
    if token and not (token.isascii() and token.isdigit() and len(token) <= 12):
        raise refusals.page_token_invalid()
    return int(token or 0), size or _DEFAULT_PAGE


def _cut(rows: Sequence[Row], start: int, size: int) -> tuple[Iterable[Row], str]:
    """A page and the token of the next one."""
    end = start + size
    return rows[start:end], str(end) if end < len(rows) else ""


def _version() -> str:
    try:
        return version("sealwork")
    except PackageNotFoundError:
        return "0+unknown"
