"""Who may take a queued job: equal answers form a lane.

All jobs of a route that the same devices may take share one lane, so that a claim looks at
lanes and never at the jobs behind their heads.
"""

from typing import NamedTuple

from relay_service.core.model import Audience, JobState, Route, RoutedJob, WorkAvailable


class LaneKey(NamedTuple):
    """What decides who may take a job of a route.

    Attributes:
        kind: the kind of work.
        audience: whose devices may run it.
        reoffer_to: the one runner it is reserved for.
        blocked: runners that refused it or asked not to be asked yet.
    """

    kind: str
    audience: Audience
    reoffer_to: str | None
    blocked: frozenset[str]


_NOBODY: frozenset[str] = frozenset()


def lane_key(job: RoutedJob) -> LaneKey:
    """The lane of a queued job. Retry-after entries count until time removes them."""
    blocked = _NOBODY
    if job.refused_by or job.retry_after_ms:
        blocked = frozenset(job.refused_by).union(runner for runner, _ in job.retry_after_ms)
    return LaneKey(job.stub.kind, job.stub.audience, job.reoffer_to, blocked)


def admits(lane: LaneKey, runner_id: str, kinds: frozenset[str], own_work: bool) -> bool:  # noqa: FBT001
    """Whether this runner may take the jobs of a lane.

    Args:
        own_work: the runner's owner is the owner of the work.
    """
    return (
        lane.kind in kinds
        and (lane.reoffer_to is None or lane.reoffer_to == runner_id)
        and runner_id not in lane.blocked
        and (own_work or lane.audience is not Audience.PRIVATE)
    )


def opening(route: Route, lane: LaneKey) -> WorkAvailable | None:
    """The word that a lane has work; None when the runner it is reserved for is blocked."""
    if lane.reoffer_to in lane.blocked:
        return None
    return WorkAvailable(route, lane.kind, lane.audience, lane.reoffer_to)


def openings(old: RoutedJob | None, new: RoutedJob | None) -> tuple[WorkAvailable, ...]:
    """What a step made claimable, the limits of its route left aside."""
    if new is None or new.state is not JobState.QUEUED:
        return ()
    lane = lane_key(new)
    if old is None or old.state is not JobState.QUEUED:
        word = opening(new.route, lane)
        return () if word is None else (word,)
    freed = sorted(lane_key(old).blocked - lane.blocked)
    return tuple(
        WorkAvailable(new.route, lane.kind, lane.audience, runner)
        for runner in freed
        if lane.reoffer_to is None or lane.reoffer_to == runner
    )
