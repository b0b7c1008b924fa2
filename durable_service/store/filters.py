"""Whether one record is what a query looks for."""

from durable_service.core.availability import availability
from durable_service.core.model import TaskRecord
from durable_service.store.base import TaskQuery


def in_query(record: TaskRecord, query: TaskQuery) -> bool:
    """Whether a task belongs to a list."""
    identity = record.definition.identity
    if identity.tenant_id != query.tenant_id or query.actor_id not in {None, identity.actor_id}:
        return False
    if query.states and record.state not in query.states:
        return False
    if query.session_id not in {None, identity.session_id}:
        return False
    if query.root_run_id not in {None, identity.root_run_id}:
        return False
    return _has_driver(record, query) and _in_time(record, query) and _waits_in(record, query)


def _has_driver(record: TaskRecord, query: TaskQuery) -> bool:
    if query.driver_id is None:
        return True
    driver = record.definition.driver
    return driver is not None and driver.id == query.driver_id and query.driver_version in {0, driver.version}


def _in_time(record: TaskRecord, query: TaskQuery) -> bool:
    created = _between(record.created_at_ms, query.created_from_ms, query.created_before_ms)
    return created and _between(record.updated_at_ms, query.updated_from_ms, query.updated_before_ms)


def _between(at_ms: int, start_ms: int | None, end_ms: int | None) -> bool:
    return (start_ms is None or start_ms <= at_ms) and (end_ms is None or at_ms < end_ms)


def _waits_in(record: TaskRecord, query: TaskQuery) -> bool:
    if query.queue is None:
        return True
    place = availability(record)
    return place is not None and place.queue is query.queue
