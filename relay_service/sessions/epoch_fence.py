"""The newest stream of a device wins, also when the older one is at another relay."""

from collections.abc import Callable


class EpochFence:
    """Compares the epoch of a stream with those of its rivals.

    Args:
        on_newer: called when a newer stream of the same device is known of.
    """

    __slots__ = ("_on_newer", "_own", "_rival")

    def __init__(self, on_newer: Callable[[], None]) -> None:
        self._on_newer = on_newer
        self._own = 0
        self._rival = 0

    def take(self, epoch: int) -> None:
        """This stream's own epoch."""
        self._own = epoch
        self._compare()

    def note_rival(self, epoch: int) -> None:
        """A relay has accepted another stream of the device."""
        self._rival = max(self._rival, epoch)
        self._compare()

    def _compare(self) -> None:
        # Which of the two is the newer one is not known before this one's own epoch is.
        if 0 < self._own < self._rival:
            self._on_newer()
