"""Keeping leases: one list of all of them, every third of their length, whichever way is open."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from relay_service.client.calls import RENEW_LEASES, Calls
from relay_service.client.errors import RelayError
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.client_session_types import seconds_of
from service_common.clocks import Clock, TimerHandle
from service_common.session_client import ClientStream

logger = logging.getLogger("sealwork.client")

OnVerdict = Callable[[job_pb2.LeaseVerdict, float], None]
"""Told of each verdict and of the instant, by the monotonic clock, from which its time counts."""

_SPREAD: Final = 0.1
_DEFAULT_SECONDS: Final = 20.0
_REMEMBERED: Final = 16
_FRAME_SHARE_BYTES: Final = 49_152
_LEASE_OVERHEAD_BYTES: Final = 4
_UNARY_LEASES: Final = 500


class Renewals:
    """Asks for all leases again and again, and turns the answers into verdicts.

    What is renewed lasts from the moment the question was sent: the relay cannot have counted from earlier,
    and this device must not believe in more than the relay does.
    """

    def __init__(
        self,
        calls: Calls,
        stream: Callable[[], ClientStream | None],
        leases: Callable[[], Sequence[job_pb2.LeaseRef]],
        on_verdict: OnVerdict,
        spawn: Callable[..., None],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        """Renew what `leases` returns.

        Args:
            calls: The way when there is no stream.
            stream: Returns the session's stream; None while there is none.
            leases: Returns every lease that is held.
            on_verdict: What to do with the answers.
            spawn: Runs a coroutine in the background.
            clock: Its monotonic half counts.
            random: Spreads the renewals of many devices.
        """
        self._calls = calls
        self._stream = stream
        self._leases = leases
        self._on_verdict = on_verdict
        self._spawn = spawn
        self._clock = clock
        self._random = random
        self._interval = _DEFAULT_SECONDS
        self._asked: OrderedDict[int, tuple[float, Sequence[job_pb2.LeaseRef]]] = OrderedDict()
        self._next_id = 1
        self._timer: TimerHandle | None = None

    def start(self, interval_seconds: float) -> None:
        """Renew at this interval, give or take a tenth, from now on."""
        self._interval = interval_seconds
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        """Renew nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def ask(self, leases: Sequence[job_pb2.LeaseRef]) -> None:
        """Renew these leases now."""
        stream = self._stream()
        if not leases:
            return
        if stream is None:
            for start in range(0, len(leases), _UNARY_LEASES):
                self._spawn(self._ask_by_call(leases[start : start + _UNARY_LEASES]))
            return
        for part in parts_of(leases, stream.limits.leases_per_frame):
            self._ask_on(stream, part)

    def answered(self, verdicts: daemon_plane_pb2.Verdicts) -> None:
        """Take an answer to a renewal."""
        asked = self._asked.pop(verdicts.renewal_id, None)
        if asked is None:
            return
        sent_at, leases = asked
        exceptions = {verdict.lease.lease_id for verdict in verdicts.verdicts}
        for verdict in verdicts.verdicts:
            self._on_verdict(verdict, sent_at)
        if not seconds_of(verdicts.renewed_for):
            return
        for lease in leases:
            if lease.lease_id not in exceptions:
                renewed = job_pb2.LeaseVerdict(
                    lease=lease, state=job_pb2.LEASE_STATE_ACTIVE, remaining=verdicts.renewed_for
                )
                self._on_verdict(renewed, sent_at)

    def _arm(self) -> None:
        wait = self._interval * self._random.uniform(1 - _SPREAD, 1 + _SPREAD)
        self._timer = self._clock.call_later(wait, self._renew_all)

    def _renew_all(self) -> None:
        self._arm()
        self.ask(self._leases())

    def _ask_on(self, stream: ClientStream, leases: Sequence[job_pb2.LeaseRef]) -> None:
        renewal_id, self._next_id = self._next_id, self._next_id + 1
        self._asked[renewal_id] = (self._clock.monotonic(), leases)
        if len(self._asked) > _REMEMBERED:
            self._asked.popitem(last=False)
        renew = daemon_plane_pb2.Renew(renewal_id=renewal_id, leases=leases)
        stream.send(daemon_plane_pb2.DaemonItem(renew=renew), control=True)

    async def _ask_by_call(self, leases: Sequence[job_pb2.LeaseRef]) -> None:
        sent_at = self._clock.monotonic()
        request = daemon_plane_pb2.RenewLeasesRequest(leases=leases)
        try:
            # One attempt: the next renewal is the next attempt, and it counts from a later moment.
            answer = await self._calls.call(RENEW_LEASES, request, attempts=1)
        except RelayError as error:
            logger.info("leases could not be renewed: %s", error)
            return
        for verdict in answer.verdicts:
            self._on_verdict(verdict, sent_at)


def parts_of(leases: Sequence[job_pb2.LeaseRef], most: int) -> Iterator[Sequence[job_pb2.LeaseRef]]:
    """Split leases so that each part fits into a frame."""
    part: list[job_pb2.LeaseRef] = []
    size = 0
    for lease in leases:
        bytes_of_lease = lease.ByteSize() + _LEASE_OVERHEAD_BYTES
        if part and (len(part) >= most or size + bytes_of_lease > _FRAME_SHARE_BYTES):
            yield part
            part, size = [], 0
        part.append(lease)
        size += bytes_of_lease
    if part:
        yield part
