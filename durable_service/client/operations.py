"""What operators look at: counts, and effects of unknown outcome."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from durable_service.client.actions import Action, action_of
from durable_service.client.calls import Calls
from durable_service.client.methods import GET_STATS, LIST_UNKNOWN_ACTIONS, PURGE_TASKS, WATCH_STATS
from durable_service.client.task_view import TaskStatus, state_of, status_of
from durable_service.client.times import duration_ms, duration_of, milliseconds_of
from durable_service.core.states import TaskState
from sealwork.durable.v1 import admin_service_pb2 as pb

_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Stats:
    """What one replica serves and what the caller's tenant has; ages in milliseconds, None where none is.

    Attributes:
        durable: What the store holds survives a restart.
        unknown_actions: Effects of open outcome that nobody works on.
    """

    server_instance: str
    version: str
    store: str
    durable: bool
    uptime_ms: int
    worker_sessions: int
    watches: int
    tasks: Mapping[TaskState, int]
    claimable_tasks: int
    oldest_claimable_ms: int | None
    live_leases: int
    unknown_actions: int
    oldest_unknown_ms: int | None
    pending_approvals: int
    oldest_pending_approval_ms: int | None


@dataclass(frozen=True, slots=True)
class UnknownAction:
    """An effect that may or may not have happened; `since_ms` is epoch milliseconds."""

    action: Action
    status: TaskStatus
    since_ms: int


class Operations:
    """For principals with the role operator or admin.

    Each method raises `DurableError` when the service refuses.
    """

    def __init__(self, calls: Calls) -> None:
        """Use these calls."""
        self._calls = calls

    async def stats(self) -> Stats:
        """Return the counts."""
        return stats_of((await self._calls.call(GET_STATS, pb.GetStatsRequest())).stats)

    async def watch_stats(self, period_ms: int = 1_000) -> AsyncIterator[Stats]:
        """Yield the counts, at once and then every `period_ms` milliseconds (200 to 15,000)."""
        request = pb.DurableAdminServiceWatchRequest(period=duration_of(period_ms))
        async for frame in self._calls.follow(WATCH_STATS, request):
            yield stats_of(frame.stats)

    async def unknown_actions(self, min_age_ms: int = 0) -> AsyncIterator[UnknownAction]:
        """Yield effects of open outcome, those that have waited longest first."""
        request = pb.ListUnknownActionsRequest(page_size=_PAGE)
        if min_age_ms:
            request.min_age.CopyFrom(duration_of(min_age_ms))
        while True:
            page = await self._calls.call(LIST_UNKNOWN_ACTIONS, request)
            for each in page.actions:
                since_ms = milliseconds_of(each.unknown_since_time)
                yield UnknownAction(action_of(each.action), status_of(each.status), since_ms)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return

    async def purge(
        self, task_ids: Sequence[str] = (), *, min_age_ms: int = 0, dry_run: bool = False
    ) -> tuple[list[str], bool]:
        """Delete tasks that have ended, with everything that belongs to them. For admins.

        Args:
            task_ids: These, at most 500; by default those that ended longest ago.
            min_age_ms: Only those that ended at least that long ago; never younger than the retention.
            dry_run: Delete nothing.

        Returns:
            The ids that are deleted, or would be, and whether there are more.
        """
        request = pb.PurgeTasksRequest(task_ids=task_ids, dry_run=dry_run)
        if min_age_ms:
            request.min_age.CopyFrom(duration_of(min_age_ms))
        answer = await self._calls.call(PURGE_TASKS, request)
        return list(answer.purged_task_ids), answer.more


def stats_of(stats: pb.DurableStats) -> Stats:
    """Return what the counts' message tells."""

    def age(name: str) -> int | None:
        return duration_ms(getattr(stats, name)) if stats.HasField(name) else None  # type: ignore[arg-type]

    return Stats(
        server_instance=stats.server_instance,
        version=stats.version,
        store=stats.store,
        durable=stats.durable,
        uptime_ms=duration_ms(stats.uptime),
        worker_sessions=stats.worker_sessions,
        watches=stats.watches,
        tasks={state_of(each.state): each.count for each in stats.tasks},
        claimable_tasks=stats.claimable_tasks,
        oldest_claimable_ms=age("oldest_claimable"),
        live_leases=stats.live_leases,
        unknown_actions=stats.unknown_actions,
        oldest_unknown_ms=age("oldest_unknown"),
        pending_approvals=stats.pending_approvals,
        oldest_pending_approval_ms=age("oldest_pending_approval"),
    )
