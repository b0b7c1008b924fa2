"""Questions that a service should have taken its time to answer, and did not: it is about to leave."""

from random import Random
from typing import Final

from service_common.client_backoff import Backoff

_BASE_SECONDS: Final = 0.2
_CAP_SECONDS: Final = 5.0
# Below this share of what it was given a service has not waited.
_EARLY_SHARE: Final = 0.5


class EarlyAnswers:
    """How long to wait before a question is asked again that may wait for its answer.

    A service that drains answers such questions at once with what there is, and the same connection leads to
    it until it has gone: without a pause it would be asked as fast as it answers, by everyone who waits.
    """

    def __init__(self, random: Random) -> None:
        """Take the jitter from there."""
        self._backoff = Backoff(random, base_seconds=_BASE_SECONDS, cap_seconds=_CAP_SECONDS)

    def pause(self, given: float, taken: float) -> float:
        """Return how many seconds to wait after an answer without what was waited for.

        Args:
            given: Seconds that the service was given.
            taken: Seconds that passed until its answer.
        """
        if taken >= given * _EARLY_SHARE:
            self._backoff.reset()
            return 0.0
        self._backoff.fail()
        return self._backoff.delay()

    def reset(self) -> None:
        """Forget those there were."""
        self._backoff.reset()
