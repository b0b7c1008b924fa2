"""Turns changes in the store and the projection into pushes on streams.

The store tells of a change synchronously; the answers need awaits, so changes are
collected and worked off by one task that exists only while there is something to do.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from random import Random

import structlog

from relay_service.authorship import Authorship
from relay_service.core.limits import INLINE_BODY_BYTES, LEASES_PER_DEVICE
from relay_service.core.model import (
    Change,
    ChurnReport,
    GrantedJob,
    LeaseChanged,
    NoticeAdded,
    PairingDecided,
    ProjectionShared,
    Route,
    SealedEnvelope,
    SessionOpened,
    Verdict,
    VerdictState,
    WorkAvailable,
)
from relay_service.core.projection import ProjectedDevice, Projection
from relay_service.inbox_delivery import InboxDelivery
from relay_service.policy import Policy
from relay_service.sessions.daemon_session import DaemonSession
from relay_service.store.base import ClaimRequest, RoutingStore
from relay_service.waiting_room import Claimant, WaitingRoom
from service_common.errors import ServiceError
from service_common.sessions.registry import SessionRegistry

_log = structlog.get_logger(__name__)

# Pieces of news between two turns of the event loop, so that a burst holds up nobody's frames.
_STEPS_PER_TURN = 16


class Dispatch:
    """Claims on behalf of waiting devices, and carries news to holders and sites.

    Args:
        policy: asked about every grant before anybody hears of it; None grants by consent alone.
    """

    def __init__(
        self,
        store: RoutingStore,
        projection: Callable[[], Projection],
        daemons: SessionRegistry[DaemonSession],
        inbox: InboxDelivery,
        *,
        lease_ms: int,
        random: Random,
        on_churn: Callable[[ChurnReport], None],
        policy: Policy | None = None,
    ) -> None:
        self._store = store
        self._projection = projection
        self._daemons = daemons
        self._inbox = inbox
        self._lease_ms = lease_ms
        self._on_churn = on_churn
        self._waiting = WaitingRoom(random)
        # Ordered, because a plain dict is slow to find its first key after many removals.
        self._work: OrderedDict[WorkAvailable, int] = OrderedDict()
        self._seekers: OrderedDict[int, Claimant] = OrderedDict()
        self._lease_changes: deque[LeaseChanged] = deque()
        self._inboxes: OrderedDict[str, None] = OrderedDict()
        self._uninformed: OrderedDict[DaemonSession, None] = OrderedDict()
        self._missed = False
        self._pump: asyncio.Task[None] | None = None
        self._authorship: Authorship | None = None
        if policy is not None:
            policy.listen(self.reconsider)
            self._authorship = Authorship(
                store,
                policy,
                lease_ms=lease_ms,
                may_have=self._may_have,
                wake=self._wake,
                seek=self.seek,
            )
        self._stop_listening = store.listen(self._note)

    async def close(self) -> None:
        """Ends listening, asking and pushing."""
        self._stop_listening()
        if self._authorship is not None:
            await self._authorship.close()
        if self._pump is not None:
            self._pump.cancel()

    # -- what streams and waiting calls say ---------------------------------------------

    def seek(self, claimant: Claimant) -> None:
        """The claimant may be able to take work now."""
        self._seekers[id(claimant)] = claimant
        self._wake()

    def forget(self, claimant: Claimant) -> None:
        """The claimant takes no work for now."""
        self._seekers.pop(id(claimant), None)
        self._waiting.leave(claimant)
        if self._authorship is not None:
            self._authorship.abandon(claimant)

    def deliver(self, site_id: str) -> None:
        """A stream of the site may be able to take notices now."""
        self._inboxes[site_id] = None
        self._wake()

    def reconsider(self) -> None:
        """Routes may have opened or closed: everyone who waits is looked at again."""
        for claimant in self._waiting.everyone():
            self.seek(claimant)

    def freed(self, runner_id: str) -> None:
        """The device holds fewer jobs than before, so one at its limit may take more."""
        for session in self._daemons.of(runner_id):
            self.seek(session)

    def note_gap(self) -> None:
        """News of the store may have been missed; see `make_up`."""
        self._missed = True

    def make_up(self) -> None:
        """Looks at everyone again if news was lost, because the store could not be reached."""
        if not self._missed:
            return
        self._missed = False
        self.reconsider()
        for session in self._daemons:
            self.look_at(session)
        self.look_at_sites()

    def look_at(self, session: DaemonSession) -> None:
        """News of this stream may have been missed: it is told again, and gets the work that waits."""
        self._uninformed[session] = None
        self.seek(session)

    def look_at_sites(self) -> None:
        """News of every site with a stream may have been missed."""
        for site_id in self._inbox.connected():
            self.deliver(site_id)

    async def claim_now(self, claimant: Claimant) -> bool:
        """Claims all that the claimant would take; True when it got something."""
        claimed = await self._claim(claimant, claimant.free)
        if self._authorship is None:
            return claimed
        await self._authorship.settled(claimant)
        return claimant.free == 0

    async def settled(self, claimant: Claimant) -> None:
        """Returns when the policy has been heard about everything that the claimant has won."""
        if self._authorship is not None:
            await self._authorship.settled(claimant)

    # -- what the store says ------------------------------------------------------------

    def _note(self, change: Change) -> None:
        match change:
            case NoticeAdded():
                self._inboxes[change.site_id] = None
            case WorkAvailable():
                self._work[change] = self._work.get(change, 0) + 1
            case LeaseChanged():
                self._lease_changes.append(change)
            case ChurnReport():
                self._on_churn(change)
                return
            case SessionOpened():
                self._fence(change)
                return
            case ProjectionShared() | PairingDecided():
                return
        self._wake()

    def _fence(self, opened: SessionOpened) -> None:
        """The newest stream of a device wins, whichever relay it came to."""
        for session in self._daemons.of(opened.runner_id):
            if session.session_id != opened.session_id:
                session.fence.note_rival(opened.epoch)

    def _wake(self) -> None:
        if self._pump is None:
            self._pump = asyncio.ensure_future(self._work_off())

    async def _work_off(self) -> None:
        try:
            steps = 0
            while self._has_work():
                await self._step()
                steps += 1
                if steps % _STEPS_PER_TURN == 0:
                    await asyncio.sleep(0)
        finally:
            self._pump = None

    def _has_work(self) -> bool:
        news = self._lease_changes or self._inboxes or self._uninformed or self._seekers or self._work
        return bool(news) or (self._authorship is not None and self._authorship.has_answers)

    async def _step(self) -> None:
        """One piece of news; cancels and losses before everything else."""
        try:
            if self._lease_changes:
                await self._carry(self._lease_changes.popleft())
            elif self._authorship is not None and self._authorship.has_answers:
                await self._authorship.carry_out()
            elif self._inboxes:
                site_id, _ = self._inboxes.popitem(last=False)
                await self._inbox.deliver(site_id)
            elif self._uninformed:
                session, _ = self._uninformed.popitem(last=False)
                await self._inform(session)
            elif self._seekers:
                _, claimant = self._seekers.popitem(last=False)
                await self._look_for_work(claimant)
            else:
                await self._offer_next()
        except asyncio.CancelledError:
            raise
        except ServiceError:
            # The sweeper says so once, and makes up for it when the store is back.
            self._missed = True
        except Exception:  # noqa: BLE001 - see below
            # News is only ever a hint: what it told of is in the store. See `make_up`.
            self._missed = True
            _log.exception("dispatch_failed")

    # -- claims -------------------------------------------------------------------------

    async def _offer_next(self) -> None:
        """Wakes one random waiting device for one job, another only when the first gets nothing."""
        work, count = self._work.popitem(last=False)
        if count > 1:
            self._work[work] = count - 1
        for claimant in self._waiting.candidates(work, self._projection()):
            if await self._claim(claimant, 1):
                return
        # Nobody would take one, so nobody would take the others.
        self._work.pop(work, None)

    async def _look_for_work(self, claimant: Claimant) -> None:
        try:
            await self._claim(claimant, claimant.free)
        except Exception:
            # It still waits, and `make_up` looks only at those who do. One that has gone has no room.
            if claimant.free > 0:
                self._waiting.enter(claimant)
            raise

    async def _claim(self, claimant: Claimant, maximum: int) -> bool:
        if maximum <= 0 or self._room(claimant) <= 0 or not claimant.kinds:
            self._waiting.leave(claimant)
            return False
        device = claimant.device
        if not _is_in_force(device, self._projection()):
            # A waiting call is not ended with the streams of its device.
            self._waiting.leave(claimant)
            return False
        most = self._most(claimant, maximum)
        if most <= 0 and claimant.request_id is None:
            self._waiting.enter(claimant)
            return False
        # One that names its claim may be repeating it, which is answered whatever the policy does.
        granted = await self._store.claim(
            ClaimRequest(
                runner_id=device.runner_id,
                owner=device.owner,
                device=device.identity,
                routes=self._projection().routes_for(device.owner),
                kinds=claimant.kinds,
                maximum=most,
                lease_ms=self._lease_ms,
                request_id=claimant.request_id,
                authorise=self._authorship is not None,
            )
        )
        if granted and self._authorship is not None:
            await self._authorship.begin(claimant, granted)
        elif granted:
            await claimant.grant(granted, await self._store.now())
        if self._room(claimant) > 0:
            self._waiting.enter(claimant)
        else:
            self._waiting.leave(claimant)
        return bool(granted)

    def _room(self, claimant: Claimant) -> int:
        return claimant.free if self._authorship is None else self._authorship.room(claimant)

    def _most(self, claimant: Claimant, maximum: int) -> int:
        """How many jobs to claim; none while the policy is left alone, which would decline them all."""
        most = min(maximum, self._room(claimant), LEASES_PER_DEVICE)
        return most if self._authorship is None else self._authorship.policy.room(most)

    def _may_have(self, claimant: Claimant, job: GrantedJob) -> bool:
        """Whether what was in force when the job was claimed still is."""
        projection, device = self._projection(), claimant.device
        route = Route(job.site_id, job.stub.owner)
        return _is_in_force(device, projection) and route in projection.routes_for(device.owner)

    # -- news for holders ---------------------------------------------------------------

    async def _carry(self, change: LeaseChanged) -> None:
        for session in self._daemons.of(change.runner_id):
            if change.payload_ready:
                await self._announce_payload(session, change)
            else:
                session.push_change(change)

    async def _inform(self, session: DaemonSession) -> None:
        """Tells a holder again of cancels and payloads, either of which it takes twice for once."""
        if session.ended:
            return
        cancels = await self._store.cancel_requests(session.runner_id)
        if cancels:
            session.push_verdicts([Verdict(lease, VerdictState.CANCEL_REQUESTED) for lease in cancels])
        for job in await self._store.held(session.runner_id):
            await session.announce_payload(job)

    async def _announce_payload(self, session: DaemonSession, change: LeaseChanged) -> None:
        job = await self._store.job(change.site_id, change.lease.job_id)
        if job is None or job.claim is None or job.payload is None:
            return
        if job.claim.lease_id != change.lease.lease_id:
            return
        small = len(job.payload.ciphertext) <= INLINE_BODY_BYTES
        if not (small and session.inline_payload):
            session.push_payload_ready(change.lease, job.payload, inline=False)
            return
        # Sending it is handing it over, so it is taken in the device's name.
        taken = await self._store.take_payload(change.runner_id, change.lease)
        if isinstance(taken, SealedEnvelope):
            session.push_payload_ready(change.lease, taken, inline=True)


def _is_in_force(device: ProjectedDevice, projection: Projection) -> bool:
    """The device is what it was when it proved its key."""
    current = projection.device(device.runner_id)
    return current is not None and not current.revoked and current == device
