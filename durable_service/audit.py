"""A line in the log for every word that a person or an operator has spoken on a task."""

from typing import Final

import structlog

from durable_service.caller import Caller
from durable_service.core.model import TaskRecord

_log: Final = structlog.get_logger(__name__)


def note(caller: Caller, act: str, record: TaskRecord, **facts: str) -> None:
    """Writes down who did what to which task.

    Args:
        act: such as `task_cancelled`.
        facts: ids and enum values alone, never what somebody wrote.
    """
    _log.info(act, caller=caller.id, tenant=record.key.tenant_id, task=record.key.task_id, **facts)
