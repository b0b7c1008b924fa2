"""How long ended tasks are kept before they are purged on their own, as operators write it."""

from collections.abc import Mapping

from durable_service.core.states import TERMINAL, TaskState
from service_common.durations import milliseconds_of


def parse_purge_policy(text: str) -> Mapping[TaskState, int]:
    """Ages in milliseconds by how a task ended; a state that is missing is kept for good.

    Args:
        text: `30d` for every task that has ended, `completed=7d,failed=30d` by how it ended, or both, where
            what is said of one state goes before what is said of all; empty for never.

    Raises:
        ValueError: it cannot be read; the text says what to write.
    """
    named: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, age = (each.strip() for each in part.rpartition("="))
        if separator and name not in TERMINAL:
            raise ValueError(f"{name!r} is not how a task ends: write {', '.join(sorted(TERMINAL))}")
        if name in named:
            raise ValueError(f"it says twice how long {name or 'every task'} is kept")
        named[name] = round(milliseconds_of(age))
    ages = {state: named.get(state, named.get("")) for state in sorted(TERMINAL)}
    return {state: age_ms for state, age_ms in ages.items() if age_ms is not None}
