"""A device: takes grants, opens what is sealed to it, does the work, and seals the answer back."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from relay_service.client.calls import Calls, RequestSigner
from relay_service.client.connection import Connection
from relay_service.client.daemon_admission import Admission
from relay_service.client.daemon_config import Limits
from relay_service.client.daemon_desk import JobDesk
from relay_service.client.daemon_jobs import Handler, JobContext
from relay_service.client.daemon_polling import Polling
from relay_service.client.daemon_renewals import Renewals
from relay_service.client.daemon_results import ResultDelivery
from relay_service.client.daemon_runs import Runner
from relay_service.client.daemon_session import DAEMON_SESSION, DaemonSession
from relay_service.client.dual_calls import DualCalls
from relay_service.client.errors import RelayError
from relay_service.client.grant_check import GrantCheck
from relay_service.client.keys import Keys
from relay_service.client.ledger import Ledger
from relay_service.client.pin_file import PINS_NAME, PinFile
from relay_service.client.pins import SitePins
from relay_service.client.prompt_log import PromptLog, PromptLogUnavailable
from relay_service.client.relay_time import RelayTime
from relay_service.client.software import UpdateOffer
from relay_service.client.spool import Spool
from relay_service.core.identity import PublicIdentity
from relay_service.core.model import Capability, WithheldKind
from sealwork.session.v1 import session_pb2
from service_common.clocks import Clock, SystemClock
from service_common.deadlines import within
from service_common.session_client import SessionClient

__all__ = ["Daemon", "Handler", "JobContext"]

logger = logging.getLogger("sealwork.client")

SLOTS: Final = 2
GRACE_SECONDS: Final = 20.0

_LEDGER: Final = "ledger.jsonl"
_FLUSH_SECONDS: Final = 5.0
# So many results that the relay does not take are a reason to take no more work.
_BACKLOG: Final = 32


class Daemon:
    """One device process, connected to a relay.

        daemon = Daemon("127.0.0.1:7443", runner_id="desk", keys=keys, pins=[shop], matrix=[row],
                        handlers={"llm.generate": answer})
        await daemon.run()

    A handler gets a `JobContext` and returns an outcome. When the site withdraws the job, its task is
    cancelled at once; when the lease is lost, too, and then nothing is reported.
    """

    def __init__(  # noqa: PLR0913 - options, all of them named
        self,
        address: str | Connection,
        *,
        runner_id: str,
        keys: Keys,
        pins: Iterable[PublicIdentity] | Mapping[str, PublicIdentity],
        matrix: Sequence[Capability],
        handlers: Mapping[str, Handler],
        slots: int = SLOTS,
        spool_dir: Path | None = None,
        owner: str | None = None,
        control_plane_key: bytes | None = None,
        limits: Limits | None = None,
        withheld: Sequence[WithheldKind] = (),
        prompt_log: PromptLog | None = None,
        trust_directory: bool = False,
        on_update: Callable[[str], None] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Prepare; nothing is connected before `run`.

        Args:
            address: The relay, `host:port` or `unix:PATH`; a `Connection` for TLS.
            runner_id: This device's id at the relay.
            keys: Its keys. The relay's projection has to name them.
            pins: The sites that may send work here.
            matrix: What is offered: kinds, and to whom.
            handlers: By kind, what does the work.
            slots: Jobs at a time.
            spool_dir: Where this device keeps what must outlive its process: results until the relay has
                them, used grants, what was done for others. None keeps all that in memory alone, so that a
                crash loses it.
            owner: The person whose device this is, as the relay names them. Without it only jobs of the
                audience `private` count as the owner's own.
            control_plane_key: Raw Ed25519 key of the control plane, 32 bytes, as the pairing brought it. With
                it no job is run without a grant that this key has signed; without it nobody but the owner
                is served. It needs `owner` and `spool_dir`.
            limits: What work may cost.
            withheld: Kinds that several services could serve, so that none is offered.
            prompt_log: Where payloads are recorded before they are run.
            trust_directory: Pin every site that the relay's directory has, instead of those in `pins` and
                their successors alone. With a control plane that is always so: its grants name the sites.
            on_update: Told of every version that the relay's operator newly offers; of an empty text when
                none is any more.
            clock: Times everything.
            random: Jitter.

        Raises:
            ValueError: The address, the id, a pin or the control plane's key cannot be used.
        """
        if control_plane_key is not None and (owner is None or spool_dir is None):
            raise ValueError("a device with a control plane has an owner and a folder for what it must keep")
        connection = Connection(address) if isinstance(address, str) else address
        self._clock = clock or SystemClock()
        self._random = random or Random()  # noqa: S311 - jitter, not a secret
        self._slots = slots
        self._stopping = False
        self._over: asyncio.Event = asyncio.Event()
        self._refusal: RelayError | None = None
        self._time = RelayTime(self._clock)
        self._update = UpdateOffer(on_update)
        trusts = trust_directory or control_plane_key is not None
        self._prompt_log = prompt_log
        self._pins = SitePins(
            pins,
            self._clock,
            trust_directory=trusts,
            file=None if spool_dir is None else PinFile(spool_dir / PINS_NAME),
            announce=self._announce,
        )
        self._ledger = Ledger(None if spool_dir is None else spool_dir / _LEDGER, self._clock)
        check = None
        if control_plane_key is not None and owner is not None:
            check = GrantCheck(control_plane_key, owner, self._ledger, self._time.now_ms)
        self._admission = Admission(
            self._pins,
            frozenset(handlers),
            matrix,
            owner=owner,
            limits=limits or Limits(),
            ledger=self._ledger,
            check=check,
            clock=self._clock,
        )
        signer = RequestSigner(runner_id, keys.signer, self._clock)
        self._unary = Calls(connection.calls_channel, signer, clock=self._clock, random=self._random)
        self._calls = DualCalls(self._unary, lambda: self._client.stream)
        self._session = DaemonSession(
            runner_id,
            uuid.uuid4().hex,
            self._admission.matrix,
            self._admission.withheld(withheld),
            free_slots=self._free_slots,
            clock=self._clock,
            on_welcome=self._welcomed,
            on_refused=self._refused,
        )
        self._client = SessionClient(
            DAEMON_SESSION,
            self._session,
            connection.session_channel,
            caller=runner_id,
            signer=keys.signer,
            clock=self._clock,
            random=self._random,
        )
        self._delivery = ResultDelivery(
            self._calls,
            None if spool_dir is None else Spool(spool_dir),
            clock=self._clock,
            random=self._random,
            on_settled=self._session.offer,
        )
        self._desk = JobDesk(
            self._admission,
            self._pins,
            Runner(
                keys,
                self._pins,
                self._admission,
                handlers,
                ledger=self._ledger,
                prompt_log=prompt_log,
                clock=self._clock,
            ),
            self._delivery,
            self._calls,
            self._unary,
            slots=slots,
            clock=self._clock,
            on_slot_free=self._slot_free,
        )
        self._renewals = Renewals(
            self._unary,
            lambda: self._client.stream,
            self._desk.leases,
            self._session.heed,
            self._calls.spawn,
            clock=self._clock,
            random=self._random,
        )
        self._session.serve(self._desk, self._renewals)
        self._polling = Polling(
            self._unary,
            self._desk,
            self._renewals.ask,
            matrix=lambda: self._admission.matrix,
            free_slots=self._free_slots,
            has_stream=lambda: self.connected,
            on_refused=self._refused,
            clock=self._clock,
            random=self._random,
        )

    @property
    def connected(self) -> bool:
        """Whether there is a stream to the relay now."""
        return self._client.stream is not None

    @property
    def active(self) -> int:
        """How many jobs are held and not finished."""
        return len(self._desk.held)

    @property
    def undelivered(self) -> int:
        """How many results the relay does not have yet."""
        return len(self._delivery)

    async def run(self, *, at_once: bool = True) -> None:
        """Serve until `stop`, over as many streams as it takes.

        Cancelling it gives back at once what is held.

        Args:
            at_once: Connect without the random delay that keeps many devices from coming in one instant.

        Raises:
            RelayError: The relay will not have this device; another try cannot change that.
            SpoolError: The spool cannot be used.
            LedgerError: The ledger cannot be read.
            PinError: What was learned about sites cannot be read.
        """
        # The spool first: its lock keeps another process out of the folder.
        self._delivery.recover()
        self._ledger.open()
        self._pins.open()
        self._client.start(at_once=at_once)
        self._calls.spawn(self._polling.run())
        try:
            await self._over.wait()
        finally:
            await self._close()
        if self._refusal is not None:
            raise self._refusal

    async def opened(self) -> None:
        """Return once there is a stream.

        Raises:
            RelayError: There will be none any more.
        """
        await self._client.opened()

    async def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Take no more work, finish what runs within the grace, give back the rest, and let `run` return."""
        if self._stopping:
            return
        self._stopping = True
        self._session.drain()
        self._desk.give_back_waiting()
        await self._up_to(grace_seconds, self._desk.idle)
        self._over.set()

    def change_matrix(self, matrix: Sequence[Capability], withheld: Sequence[WithheldKind] = ()) -> None:
        """Offer something else from now on; jobs that run are not affected."""
        self._admission.matrix = self._admission.offered(matrix)
        self._session.change(self._admission.matrix, self._admission.withheld(withheld))

    def _welcomed(self, welcome: session_pb2.Welcome) -> None:
        self._time.heed(welcome)
        self._update.heed(welcome)

    def _announce(self, event: str, keys: Mapping[str, str]) -> None:
        if self._prompt_log is not None:
            try:
                self._prompt_log.log_event(event, keys)
            except PromptLogUnavailable as error:
                logger.error("the prompt log cannot be written: %s", error)

    def _slot_free(self) -> None:
        self._session.offer()
        self._polling.wake()

    def _free_slots(self) -> int:
        if self._stopping or len(self._delivery) >= _BACKLOG:
            return 0
        return max(0, self._slots - len(self._desk.held))

    def _refused(self, error: RelayError) -> None:
        self._refusal = error
        self._stopping = True
        self._desk.drop_all()
        self._over.set()

    async def _up_to(self, seconds: float, event: asyncio.Event) -> None:
        try:
            await within(self._clock, seconds, _set(event))
        except TimeoutError:
            logger.warning("the grace of %.0f seconds is over", seconds)

    async def _close(self) -> None:
        self._stopping = True
        self._renewals.stop()
        self._desk.give_back_all()
        try:
            await self._end_work()
            if self._refusal is None:
                await self._flush()
        finally:
            try:
                await self._client.close("the daemon stops")
            finally:
                self._delivery.close()
                self._ledger.close()
                await self._calls.close()

    async def _end_work(self) -> None:
        try:
            await within(self._clock, _FLUSH_SECONDS, self._desk.close())
        except TimeoutError:
            logger.error("a handler does not stop when it is cancelled; it is left behind")

    async def _flush(self) -> None:
        try:
            await within(self._clock, _FLUSH_SECONDS, self._told())
        except TimeoutError:
            logger.warning(
                "the relay does not answer; %d results wait for the next start", len(self._delivery)
            )

    async def _told(self) -> None:
        await self._desk.releases.flush()
        await self._delivery.flush()


async def _set(event: asyncio.Event) -> None:
    await event.wait()
