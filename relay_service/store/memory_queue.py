"""Queued jobs by route and lane, and whose turn it is.

The cost of a claim depends on the routes it names and on the lanes of those routes, never on
how many jobs wait in them or elsewhere.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable

from relay_service.core.lanes import LaneKey, admits, lane_key, opening, openings
from relay_service.core.model import JobState, Route, RoutedJob, WorkAvailable
from relay_service.core.moves import UNSEALED
from relay_service.store.base import ClaimRequest
from relay_service.store.memory_row import Row

_SPARE_ENTRIES = 64
_NO_TURN = 0


class Lane:
    """Jobs that the same devices may take, by place in the queue.

    A job that leaves from the middle stays in the heap as a stale entry until it comes to the
    head or the heap is rebuilt.
    """

    __slots__ = ("entries", "key", "live")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.entries: list[tuple[int, Row]] = []
        self.live = 0

    def add(self, row: Row, sequence: int) -> None:
        heapq.heappush(self.entries, (sequence, row))
        row.lane = self
        self.live += 1

    def remove(self, row: Row) -> None:
        row.lane = None
        self.live -= 1
        if self.entries[0][1] is row:
            heapq.heappop(self.entries)
        elif len(self.entries) > 3 * self.live + _SPARE_ENTRIES:
            # A dict, because a row that left and came back has two entries.
            self.entries = list({entry: None for entry in self.entries if entry[1].lane is self})
            heapq.heapify(self.entries)

    def head(self) -> tuple[int, Row] | None:
        """The first job, dropping stale entries before it."""
        while self.entries:
            entry = self.entries[0]
            if entry[1].lane is self:
                return entry
            heapq.heappop(self.entries)
        return None


class RouteQueue:
    """What one route has queued and how many of its grants wait for their payload."""

    __slots__ = ("jobs", "lanes", "route", "turn", "unsealed")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.lanes: dict[LaneKey, Lane] = {}
        self.jobs = 0
        self.unsealed = 0
        self.turn = _NO_TURN

    def add(self, row: Row, job: RoutedJob) -> None:
        key = lane_key(job)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key)
        lane.add(row, job.sequence)

    def remove(self, row: Row) -> None:
        lane = row.lane
        if lane is not None:
            lane.remove(row)
            if lane.live == 0:
                del self.lanes[lane.key]

    def openings(self) -> Iterable[WorkAvailable]:
        """The word of every lane, each said once."""
        words = {opening(self.route, key): None for key in self.lanes}
        return [word for word in words if word is not None]


class Queues:
    """All routes, and the order in which they are served.

    A route takes its place at the end of the rotation when its first job is queued and after
    each job that is granted, so none is passed over however many there are.

    Attributes:
        inspected: routes, lanes and jobs that claims have looked at so far.
    """

    def __init__(self, unsealed_per_route: int) -> None:
        self._unsealed_per_route = unsealed_per_route
        self._known: dict[Route, RouteQueue] = {}
        # Ordered, because a plain dict that was once large stays slow to walk.
        self._active: OrderedDict[Route, RouteQueue] = OrderedDict()
        self._turns = 0
        self.inspected = 0

    def of(self, route: Route) -> RouteQueue:
        """The queue of a route, for a new job of it."""
        queue = self._known.get(route)
        if queue is None:
            queue = self._known[route] = RouteQueue(route)
        return queue

    def replace(self, row: Row, old: RoutedJob | None, new: RoutedJob | None) -> Iterable[WorkAvailable]:
        """Moves a job from where it was to where it is.

        Returns:
            What can be claimed now that could not be before.
        """
        queue = row.queue
        was_full = queue.unsealed >= self._unsealed_per_route
        if old is None:
            queue.jobs += 1
        elif old.state in UNSEALED:
            queue.unsealed -= 1
        elif old.state is JobState.QUEUED:
            queue.remove(row)
        if new is None:
            queue.jobs -= 1
        elif new.state in UNSEALED:
            queue.unsealed += 1
        elif new.state is JobState.QUEUED:
            self._add(queue, row, new)
        self._retire(queue)
        if not queue.lanes or queue.unsealed >= self._unsealed_per_route:
            return ()
        return queue.openings() if was_full else openings(old, new)

    def turns(self, request: ClaimRequest) -> "Turns":
        """The routes that a claim may be served from, the one longest unserved first."""
        if len(request.routes) <= len(self._active):
            found = [queue for route in request.routes if (queue := self._active.get(route))]
            self.inspected += len(request.routes)
        else:
            found = [queue for route, queue in self._active.items() if route in request.routes]
            self.inspected += len(self._active)
        return Turns(self, request, found)

    def is_full(self, queue: RouteQueue) -> bool:
        return queue.unsealed >= self._unsealed_per_route

    def to_the_end(self, queue: RouteQueue) -> None:
        """The route has been served, or is new: all others come first."""
        self._turns += 1
        queue.turn = self._turns

    def _add(self, queue: RouteQueue, row: Row, job: RoutedJob) -> None:
        if queue.turn == _NO_TURN:
            self._active[queue.route] = queue
            self.to_the_end(queue)
        queue.add(row, job)

    def _retire(self, queue: RouteQueue) -> None:
        """A route with nothing queued leaves the rotation, one without jobs is not kept."""
        if not queue.lanes and queue.turn != _NO_TURN:
            del self._active[queue.route]
            queue.turn = _NO_TURN
        if queue.jobs == 0:
            del self._known[queue.route]


class Turns:
    """One claim's way through the routes it may be served from."""

    def __init__(self, queues: Queues, request: ClaimRequest, found: list[RouteQueue]) -> None:
        self._queues = queues
        self._request = request
        self._waiting = [(queue.turn, queue) for queue in found]
        heapq.heapify(self._waiting)

    def next(self) -> Row | None:
        """The job to grant now; whoever asks grants it before asking again."""
        while self._waiting:
            queue = self._waiting[0][1]
            row = None if self._queues.is_full(queue) else self._first(queue)
            if row is None:
                heapq.heappop(self._waiting)
                continue
            # The grant may take the route's last job, which ends its part in the rotation.
            self._queues.to_the_end(queue)
            heapq.heapreplace(self._waiting, (queue.turn, queue))
            return row
        return None

    def _first(self, queue: RouteQueue) -> Row | None:
        request = self._request
        own_work = queue.route.owner == request.owner
        best: tuple[int, Row] | None = None
        for key, lane in queue.lanes.items():
            self._queues.inspected += 1
            if not admits(key, request.runner_id, request.kinds, own_work):
                continue
            entries = len(lane.entries)
            head = lane.head()
            self._queues.inspected += 1 + entries - len(lane.entries)
            if head is not None and (best is None or head[0] < best[0]):
                best = head
        return None if best is None else best[1]
