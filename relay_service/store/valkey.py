"""The routing store on a Valkey server: shared by replicas, and not lost by their restarts.

Every operation on a site is one function on the server that lets time pass, decides and writes, so it is
one atomic step; time is the server's. What a runner does at several sites is atomic site by site.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson

from relay_service.core.model import (
    ChurnReport,
    Disposition,
    GrantedJob,
    JobKey,
    JobStub,
    LeaseRef,
    Notice,
    Presence,
    Refusal,
    ReleaseReason,
    RoutedJob,
    SealedEnvelope,
    Swept,
    Verdict,
)
from relay_service.core.quotas import Quotas
from relay_service.store.base import (
    ClaimRequest,
    Completed,
    Enqueued,
    Listener,
    SharedProjection,
    StoreUnavailable,
    TooLate,
)
from relay_service.store.pairings_valkey import ValkeyPairings
from relay_service.store.valkey_changes import Listeners, Subscription
from relay_service.store.valkey_claims import Claims
from relay_service.store.valkey_envelopes import Envelopes
from relay_service.store.valkey_holders import Holders
from relay_service.store.valkey_library import build_library
from relay_service.store.valkey_names import DEFAULT_PREFIX, check_prefix, site_tag
from relay_service.store.valkey_overviews import Overviews
from relay_service.store.valkey_readers import Readers
from relay_service.store.valkey_records import header_text, stub_text
from relay_service.store.valkey_relays import Relays
from relay_service.store.valkey_runners import Runners
from relay_service.store.valkey_sites import Functions, Sites
from relay_service.store.valkey_time import ServerTime
from relay_service.store.valkey_wire import wires

_DEFAULT_QUOTAS = Quotas()
_SECRET_BYTES = 16
_SITES_AT_A_TIME = 200
# How often all sites are visited, in case the instant of one was never noted.
_FULL_SWEEP_SECONDS = 30.0
# A noted instant may be early; each look corrects one.
_LOOKS = 1_000


def _new_secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)


def _server_time() -> str:
    return ""


class ValkeyRoutingStore:
    """`RoutingStore` on Valkey 7.2 or later, or on a server that speaks the same functions.

    `start` before use. While the server is away every operation raises `StoreUnavailable`; the
    connections come back by themselves.
    """

    def __init__(
        self,
        url: str,
        *,
        quotas: Quotas = _DEFAULT_QUOTAS,
        prefix: str = DEFAULT_PREFIX,
        new_secret: Callable[[], str] = _new_secret,
        clock_setting: Callable[[], str] = _server_time,
        on_gap: Callable[[], None] | None = None,
        on_unreadable: Callable[[str, str], None] | None = None,
    ) -> None:
        """Makes a store that is not connected yet.

        Args:
            url: `valkey://`, `valkeys://` (TLS) or `unix://`.
            quotas: the same at all replicas of a deployment.
            prefix: begins every key and names the channel of a deployment; no braces.
            new_secret: the part of a lease id that nobody can guess, never the same twice.
            clock_setting: for tests only. Empty is the server's time; an instant (epoch ms) takes
                its place.
            on_gap: told when changes may have been missed, so that waiting work is looked for.
            on_unreadable: told the site and the job (either may be empty) of a stored value that
                could not be read and was skipped.

        Raises:
            ValueError: the address or the prefix cannot be used.
        """
        make_wire = wires(url)
        self._listeners = Listeners()
        self._subscription = Subscription(make_wire, f"{prefix}changes", self._listeners, on_gap)
        functions = Functions(
            make_wire, build_library(quotas), check_prefix(prefix), on_gap, on_moved=self._subscription.renew
        )
        self._connection = functions.connection
        self._functions = functions
        self._sites = Sites(functions, self._listeners, clock_setting, on_unreadable)
        self._time = ServerTime(functions, clock_setting)
        self._runners = Runners(self._sites)
        self._envelopes = Envelopes(self._sites)
        self._readers = Readers(self._sites, self._envelopes)
        self._overviews = Overviews(self._sites)
        self._holders = Holders(self._sites, self._runners, self._envelopes)
        self._claims = Claims(self._sites, self._runners, new_secret, quotas.leases_per_device)
        self._relays = Relays(functions, self._listeners, clock_setting)
        self.pairings = ValkeyPairings(functions, self._listeners, clock_setting)
        self._full_sweep_at = 0.0
        self._swept_epoch = 0

    @property
    def inspected(self) -> int:
        """Routes, lanes and jobs that claims have looked at so far."""
        return self._claims.inspected

    @property
    def unreadable(self) -> int:
        """Stored values met so far that could not be read and were skipped."""
        return self._sites.unreadable

    async def start(self, seconds: float = 5.0) -> None:
        """Connects and subscribes.

        Raises:
            StoreUnavailable: not within this time.
        """
        await self._connection.start(seconds)
        try:
            await self._subscription.start(seconds)
        except StoreUnavailable:
            await self.close()
            raise

    async def delivered(self) -> None:
        """Returns when every change so far has reached the listeners of this store.

        Raises:
            StoreUnavailable: the server or the subscription is away.
        """
        await self._subscription.delivered(self._connection)

    async def now(self) -> int:
        return await self._time.now_ms()

    async def enqueue(self, site_id: str, stub: JobStub) -> Enqueued | Refusal:
        await self._sites.register(site_id)
        outcome, *jobs = await self._sites.ask(site_id, "enqueue", stub_text(stub))
        if outcome == b"quota-exceeded":
            return Refusal.QUOTA_EXCEEDED
        job = await self._readers.answered(site_id, stub.id, jobs[0])
        return Enqueued(job, created=outcome == b"created")

    async def job(self, site_id: str, job_id: str) -> RoutedJob | None:
        return await self._readers.job(site_id, job_id)

    async def jobs(self) -> Sequence[RoutedJob]:
        await self.sweep()
        return await self._readers.jobs()

    async def awaiting(self, site_id: str) -> Sequence[RoutedJob]:
        return await self._readers.index(site_id, "awaiting")

    async def finished(self, site_id: str) -> Sequence[RoutedJob]:
        return await self._readers.index(site_id, "finished")

    async def claim(self, request: ClaimRequest) -> Sequence[GrantedJob]:
        return await self._claims.claim(request)

    async def authorise_grant(
        self, runner_id: str, lease: LeaseRef, signed_grant: bytes, lease_ms: int
    ) -> GrantedJob | None:
        return await self._holders.authorise_grant(runner_id, lease, signed_grant, lease_ms)

    async def decline_grant(
        self, runner_id: str, lease: LeaseRef, *, refused: bool, retry_after_ms: int | None = None
    ) -> bool:
        return await self._holders.decline_grant(
            runner_id, lease, refused=refused, retry_after_ms=retry_after_ms
        )

    async def take_payload(self, runner_id: str, lease: LeaseRef) -> SealedEnvelope | Refusal:
        return await self._holders.take_payload(runner_id, lease)

    async def complete(
        self, runner_id: str, lease: LeaseRef, envelope: SealedEnvelope, disposition: Disposition
    ) -> Completed | Refusal:
        return await self._holders.complete(runner_id, lease, envelope, disposition)

    async def release_leases(
        self,
        runner_id: str,
        leases: Sequence[LeaseRef],
        reason: ReleaseReason,
        retry_after_ms: int | None = None,
    ) -> Sequence[str]:
        return await self._holders.release_leases(runner_id, leases, reason, retry_after_ms)

    async def seal(
        self, site_id: str, lease: LeaseRef, recipient_key_id: str, envelope: SealedEnvelope
    ) -> RoutedJob | TooLate:
        ciphertext, staged = await self._envelopes.stage(site_tag(site_id), envelope)
        named = (lease.job_id, lease.lease_id, recipient_key_id)
        outcome, *jobs = await self._sites.ask(
            site_id, "seal", *named, header_text(envelope), ciphertext, staged
        )
        if outcome == b"not-found":
            return TooLate(Refusal.NOT_FOUND)
        if outcome == b"sealed":
            text, _, result = jobs[0]
            return await self._readers.answered(site_id, lease.job_id, (text, envelope.ciphertext, result))
        was = await self._readers.answered(site_id, lease.job_id, jobs[0])
        return TooLate(Refusal(outcome.decode()), was)

    async def cancel(self, site_id: str, job_id: str) -> bool:
        (found,) = await self._sites.ask(site_id, "cancel", job_id)
        return bool(found)

    async def cancel_requests(self, runner_id: str) -> Sequence[LeaseRef]:
        return await self._holders.cancel_requests(runner_id)

    async def acknowledge_cancels(self, runner_id: str, leases: Sequence[LeaseRef]) -> None:
        await self._holders.acknowledge_cancels(runner_id, leases)

    async def renew_leases(
        self, runner_id: str, leases: Sequence[LeaseRef], lease_ms: int
    ) -> Sequence[Verdict]:
        return await self._holders.renew_leases(runner_id, leases, lease_ms)

    async def held(self, runner_id: str) -> Sequence[GrantedJob]:
        return await self._holders.held(runner_id)

    async def acknowledge(
        self, site_id: str, job_ids: Sequence[str], notice_ids: Sequence[str] = ()
    ) -> Sequence[str]:
        named = (orjson.dumps(list(job_ids)), orjson.dumps(list(notice_ids)))
        settled = await self._sites.ask(site_id, "acknowledge", *named)
        return [name.decode() for name in settled]

    async def notices(self, site_id: str, after: int, limit: int) -> Sequence[Notice]:
        return await self._readers.notices(site_id, after, limit)

    async def seen(self, presence: Presence) -> Presence:
        return replace(presence, last_seen_at_ms=await self._runners.seen(presence))

    async def presence(self, runner_id: str) -> Presence | None:
        return await self._runners.presence(runner_id)

    async def everyone(self) -> Sequence[Presence]:
        return await self._runners.everyone()

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        return await self._runners.use_nonce(caller, nonce, ttl_ms)

    async def open_session(self, runner_id: str, session_id: str) -> int:
        return await self._relays.open_session(runner_id, session_id)

    async def share_projection(self, revision: int, document: bytes) -> bool:
        return await self._relays.share_projection(revision, document)

    async def shared_projection(self) -> SharedProjection | None:
        return await self._relays.shared_projection()

    async def oldest_queued_ms(self) -> int | None:
        return await self._overviews.oldest_queued_ms()

    async def churn_reports(self) -> Sequence[ChurnReport]:
        return await self._overviews.churn_reports()

    async def sweep(self) -> Swept:
        """Lets time pass at every site where something is due; each site is one step."""
        requeued: list[JobKey] = []
        ended: list[JobKey] = []
        sites = await self._sites_to_sweep()
        for start in range(0, len(sites), _SITES_AT_A_TIME):
            some = sites[start : start + _SITES_AT_A_TIME]
            answers = await asyncio.gather(*(self._sites.sweep(site_id) for site_id in some))
            for site_id, (back, gone) in zip(some, answers, strict=True):
                requeued += [JobKey(site_id, job_id) for job_id in back]
                ended += [JobKey(site_id, job_id) for job_id in gone]
        return Swept(requeued, ended)

    async def next_due_ms(self, within_ms: int | None = None) -> int | None:
        for _ in range(_LOOKS):
            now_ms, _, earliest = await self._sites.due()
            if earliest is None:
                return None
            site_id, noted = earliest
            if within_ms is not None and noted > now_ms + within_ms:
                # Never after the true one. To correct it is a look at every busy site, again and again, since
                # the next job of a site notes an early instant again.
                return noted
            (instant,) = await self._sites.ask(site_id, "due")
            if instant is not None and instant <= noted:
                return int(instant)
        return await self.now()

    def listen(self, listener: Listener) -> Callable[[], None]:
        return self._listeners.listen(listener)

    async def close(self) -> None:
        self._listeners.clear()
        await self._subscription.close()
        await self._connection.close()

    async def _sites_to_sweep(self) -> list[str]:
        now, epoch = asyncio.get_running_loop().time(), self._functions.epoch
        if now >= self._full_sweep_at or epoch != self._swept_epoch:
            self._full_sweep_at, self._swept_epoch = now + _FULL_SWEEP_SECONDS, epoch
            return await self._sites.everywhere()
        _, due, _ = await self._sites.due()
        return sorted(due)
