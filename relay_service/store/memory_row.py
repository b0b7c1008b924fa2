"""One job's place in every index of the memory store."""

from typing import TYPE_CHECKING

from relay_service.core.model import RoutedJob

if TYPE_CHECKING:
    from relay_service.store.memory_queue import Lane, RouteQueue
    from relay_service.store.memory_table import SiteShelf


class Row:
    """A job as the indexes know it.

    They hold rows and not keys: a row is found by identity, and that of a forgotten job
    (`job` is None) is never mistaken for a later job of the same id.
    """

    __slots__ = ("enqueued_at_ms", "is_aged", "job", "lane", "queue", "scheduled_at_ms", "shelf")

    def __init__(self, shelf: "SiteShelf", queue: "RouteQueue", enqueued_at_ms: int) -> None:
        self.job: RoutedJob | None = None
        self.shelf = shelf
        self.queue = queue
        self.lane: Lane | None = None
        self.scheduled_at_ms: int | None = None
        self.enqueued_at_ms = enqueued_at_ms
        self.is_aged = False

    @property
    def known(self) -> RoutedJob:
        """The job.

        Raises:
            LookupError: it is forgotten, which no index may show.
        """
        if self.job is None:
            raise LookupError("the job is forgotten")
        return self.job
