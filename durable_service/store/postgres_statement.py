"""One statement of several parts, which is one transaction and one round trip."""

from typing import TypeAlias

Write: TypeAlias = tuple[str, dict[str, object]]


class Statement:
    """A write of the row of one task and of what belongs to it.

    Its first part, `task`, has the id of the task if that was written; the other parts take it from there,
    and so do nothing when it was not. No part sees what another one has written.
    """

    def __init__(self, task: str, values: dict[str, object]) -> None:
        self._parts = [f"task AS ({task})"]
        self._values = values

    def add(self, part: str, **values: object) -> None:
        self._parts.append(f"part_{len(self._parts)} AS ({part})")
        self._values |= values

    def write(self) -> Write:
        return f"WITH {', '.join(self._parts)} SELECT id FROM task", self._values  # noqa: S608 - our own texts
