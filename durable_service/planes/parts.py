"""What the planes work with."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from durable_service.blobs.base import BlobStore
from durable_service.open_tasks import OpenTasks
from durable_service.planes.admission_desk import AdmissionDesk
from durable_service.planes.gate import Gate
from durable_service.planes.watches import Watches
from durable_service.store.base import TaskStore
from durable_service.task_news import TaskNews
from durable_service.work_offers import WorkOffers
from service_common.clocks import Clock


@dataclass(frozen=True)
class Parts:
    """One service, as its planes see it.

    Attributes:
        clock: for waits and signs of life; what counts for a task is the store's own clock.
        new_id: makes an id that nobody can guess.
        random: spreads load, keeps no secret.
        lease_ms: length of a lease granted or renewed.
        artifact_bytes: largest artifact taken.
        retention_ms: no task is purged before it has been over for this long.
    """

    store: TaskStore
    blobs: BlobStore
    news: TaskNews
    offers: WorkOffers
    gate: Gate
    watches: Watches
    clock: Clock
    new_id: Callable[[], str]
    random: Random
    lease_ms: int
    artifact_bytes: int
    retention_ms: int
    admission: AdmissionDesk
    open_tasks: OpenTasks
