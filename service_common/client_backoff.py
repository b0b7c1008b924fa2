"""How long a client waits before it connects again."""

from random import Random
from typing import Final

_FIRST_SECONDS: Final = 2.0
_BASE_SECONDS: Final = 0.5
_CAP_SECONDS: Final = 30.0


class Backoff:
    """Full jitter: each delay is uniform between zero and a bound that doubles with every failure.

    The first delay has a bound too: when a server restarts, all its clients lose their streams in the same
    instant.
    """

    def __init__(
        self,
        random: Random,
        *,
        base_seconds: float = _BASE_SECONDS,
        cap_seconds: float = _CAP_SECONDS,
        first_seconds: float = _FIRST_SECONDS,
    ) -> None:
        """Start without failures.

        Args:
            random: Source of the jitter.
            base_seconds: Doubled once for each failure.
            cap_seconds: No bound is larger.
            first_seconds: Bound of the delay when nothing has failed.
        """
        self._random = random
        self._base = base_seconds
        self._cap = cap_seconds
        self._first = first_seconds
        self.failures = 0

    def fail(self) -> None:
        """Count a failure."""
        self.failures += 1

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0

    def delay(self, at_least: float = 0.0) -> float:
        """Return the next delay in seconds.

        Args:
            at_least: Seconds that the server asked for; the jitter comes on top, since it asked all clients.
        """
        # Bounded before the power is taken: a client may fail for years.
        doublings = min(self.failures, 16)
        bound = min(self._cap, self._base * 2**doublings) if self.failures else self._first
        return at_least + self._random.uniform(0, bound)
