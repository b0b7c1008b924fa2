"""A circuit breaker: a service that fails again and again is left alone for a while."""

FAILURES_TO_OPEN = 5
OPEN_SECONDS = 5.0


class Circuit:
    """Counts failures in a row; time is an argument, in seconds since an arbitrary start.

    Closed, every call is let through. Five failures in a row open it, and none is. After five
    seconds one call probes: its success closes the circuit, its failure opens it anew.
    """

    __slots__ = ("_failures", "_failures_to_open", "_open_seconds", "_opened_at", "_probing")

    def __init__(self, failures_to_open: int = FAILURES_TO_OPEN, open_seconds: float = OPEN_SECONDS) -> None:
        self._failures_to_open = failures_to_open
        self._open_seconds = open_seconds
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether calls are kept back, all of them or all but a probe."""
        return self._opened_at is not None

    def wait_seconds(self, now: float) -> float:
        """How long no call is let through; 0 when one is."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._open_seconds - now)

    def would_admit(self, now: float) -> bool:
        """Whether a call now would be let through."""
        return self._opened_at is None or (not self._probing and self.wait_seconds(now) <= 0)

    def admit(self, now: float) -> bool:
        """Lets a call through or not; each that is let through is reported on."""
        if not self.would_admit(now):
            return False
        self._probing = self.is_open
        return True

    def succeeded(self) -> bool:
        """A call was answered; True when this closes the circuit."""
        was_open = self.is_open
        self._failures, self._opened_at, self._probing = 0, None, False
        return was_open

    def failed(self, now: float) -> bool:
        """A call was not answered; True when this opens the circuit, for the first time or anew."""
        if self._opened_at is not None:
            # One that was let through before the circuit opened tells nothing new.
            reopens = self._probing
            self._opened_at = now if reopens else self._opened_at
            self._probing = False
            return reopens
        self._failures += 1
        if self._failures < self._failures_to_open:
            return False
        self._opened_at = now
        return True

    def given_up(self) -> None:
        """A call was let through and nobody waits for its answer any more."""
        self._probing = False
