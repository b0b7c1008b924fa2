"""What may be forgotten, and what stays of it."""

from durable_service.core.model import TaskRecord, Tombstone


def purgeable(record: TaskRecord, ended_before_ms: int) -> bool:
    """Whether a task may be purged: it has ended, long enough ago, and no outcome is open."""
    return record.terminal and record.updated_at_ms < ended_before_ms and not any(record.open_actions())


def tombstone(record: TaskRecord, now_ms: int) -> Tombstone:
    return Tombstone(record.key, record.digest, now_ms)
