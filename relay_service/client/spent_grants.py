"""Which grants were used. No I/O and no clock."""

from collections.abc import Iterator


class SpentGrants:
    """Remembers every grant that was used for as long as it could be accepted again.

    What is forgotten leaves a horizon behind: nothing that was issued before it is ever accepted again. No
    clock is asked, only the instants that the control plane has signed: a clock that is set back, by whoever
    tells this device the time, makes no forgotten grant good again.
    """

    def __init__(self, remembered_ms: int) -> None:
        """Start without memory.

        Args:
            remembered_ms: A grant that was issued so long before the latest one is forgotten.
        """
        self.horizon_ms = 0
        self._remembered_ms = remembered_ms
        self._issued_at_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._issued_at_ms)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._issued_at_ms.items())

    def is_spent(self, grant_id: str, issued_at_ms: int) -> bool:
        """Tell whether a grant was used, or may have been."""
        return issued_at_ms <= self.horizon_ms or grant_id in self._issued_at_ms

    def add(self, grant_id: str, issued_at_ms: int) -> None:
        """Remember a grant that is used now."""
        self._issued_at_ms[grant_id] = issued_at_ms
        latest = max(self._issued_at_ms.values())
        old = [at for at in self._issued_at_ms.values() if at < latest - self._remembered_ms]
        if old:
            self.raise_horizon(max(old))

    def raise_horizon(self, issued_at_ms: int) -> None:
        """Accept nothing that was issued then or before."""
        self.horizon_ms = max(self.horizon_ms, issued_at_ms)
        self._issued_at_ms = {each: at for each, at in self._issued_at_ms.items() if at > self.horizon_ms}
