"""The stage on which the contract is played: one store, a site, people and their devices."""
# ruff: noqa: S101

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import (
    Audience,
    Change,
    Direction,
    Disposition,
    GrantedJob,
    JobStub,
    LeaseRef,
    Notice,
    NoticeKind,
    Presence,
    Refusal,
    ReleaseReason,
    Route,
    RoutedJob,
    SealedEnvelope,
    SizeClass,
    Verdict,
)
from relay_service.core.quotas import Quotas
from relay_service.store.base import ClaimRequest, Completed, Enqueued, RoutingStore, TooLate

SITE = "site_store"
OTHER_SITE = "site_other"
YEAR_2100_MS = 4_102_444_800_000
FAR_AHEAD = 1_000_000

# What a store under test is built with: small enough to reach.
CONTRACT_QUOTAS = Quotas(
    unfinished_jobs_per_site=200,
    results_per_site=50,
    result_bytes_per_site=10_000,
    ended_notices_per_site=200,
    leases_per_device=64,
    unsealed_per_route=2,
)


class StoreHarness(Protocol):
    """What an implementation brings to the contract, as the fixture `store_harness`."""

    @property
    def store(self) -> RoutingStore:
        """A fresh, empty store with `CONTRACT_QUOTAS`, its clock within a day of the wall clock."""

    async def advance(self, milliseconds: int) -> None:
        """Moves the store's clock on. Real time may pass beside it, but less than 500 ms a test."""

    async def delivered(self) -> None:
        """Returns when every change so far has reached the listeners."""

    async def spoil_stub(self, site_id: str, job_id: str) -> bool:
        """Makes the stored stub unreadable; False when the store keeps values and not bytes."""


def device(number: int = 1) -> PublicIdentity:
    """The public keys of a device; a store never checks them."""
    return PublicIdentity(bytes([number]) * 32, bytes([100 + number]) * 32, bytes([200]) * 64)


def envelope(
    ciphertext: bytes = b"AAAA", recipient: str = "BYOLLM-R", direction: Direction = Direction.PAYLOAD
) -> SealedEnvelope:
    """An envelope that nobody could open; a store never looks inside."""
    return SealedEnvelope(ciphertext, recipient, "BYOLLM-S", direction, YEAR_2100_MS)


def reference(grant: GrantedJob) -> LeaseRef:
    return LeaseRef(grant.stub.id, grant.lease_id)


def ids(grants: Sequence[GrantedJob]) -> list[str]:
    return [grant.stub.id for grant in grants]


@dataclass(slots=True)
class Scene:
    """Short words for what happens in nearly every case; the defaults are alice's."""

    store: RoutingStore
    changes: list[Change] = field(default_factory=list)

    def watch(self) -> None:
        """Collects changes from here on."""
        self.store.listen(self.changes.append)

    async def enqueue(
        self,
        *job_ids: str,
        site: str = SITE,
        owner: str = "alice",
        kind: str = "llm.generate",
        audience: Audience = Audience.PRIVATE,
        deadline_at_ms: int = YEAR_2100_MS,
    ) -> RoutedJob:
        """Adds jobs; the last one as it stands."""
        answer: Enqueued | Refusal = Refusal.NOT_FOUND
        for job_id in job_ids:
            stub = JobStub(job_id, kind, owner, "BYOLLM-S", audience, SizeClass.SMALL, False, deadline_at_ms)
            answer = await self.store.enqueue(site, stub)
        assert isinstance(answer, Enqueued)
        return answer.job

    async def claim(
        self,
        runner: str = "runner_1",
        owner: str = "alice",
        routes: Sequence[tuple[str, str]] = ((SITE, "alice"),),
        kinds: Sequence[str] = ("llm.generate",),
        maximum: int = 10,
        lease_ms: int = 60_000,
        request_id: str | None = None,
        *,
        authorise: bool = False,
    ) -> Sequence[GrantedJob]:
        request = ClaimRequest(
            runner_id=runner,
            owner=owner,
            device=device(),
            routes=frozenset(Route(*route) for route in routes),
            kinds=frozenset(kinds),
            maximum=maximum,
            lease_ms=lease_ms,
            request_id=request_id,
            authorise=authorise,
        )
        return await self.store.claim(request)

    async def claimed(self, job_id: str = "a", lease_ms: int = 60_000) -> GrantedJob:
        """A job that runner_1 has just claimed."""
        await self.enqueue(job_id)
        grants = await self.claim(lease_ms=lease_ms)
        assert ids(grants) == [job_id]
        return grants[0]

    async def held_back(self, job_id: str = "a", runner: str = "runner_1") -> GrantedJob:
        """A job that this runner has just won, with the policy not heard yet."""
        await self.enqueue(job_id)
        grants = await self.claim(runner, authorise=True)
        assert ids(grants) == [job_id]
        return grants[0]

    async def authorise(
        self, grant: GrantedJob, signed: bytes = b"signed", runner: str = "runner_1", lease_ms: int = 60_000
    ) -> GrantedJob | None:
        return await self.store.authorise_grant(runner, reference(grant), signed, lease_ms)

    async def decline(
        self,
        grant: GrantedJob,
        *,
        refused: bool = False,
        retry_after_ms: int | None = None,
        runner: str = "runner_1",
    ) -> bool:
        return await self.store.decline_grant(
            runner, reference(grant), refused=refused, retry_after_ms=retry_after_ms
        )

    async def ready(self, job_id: str = "a", lease_ms: int = 60_000) -> GrantedJob:
        grant = await self.claimed(job_id, lease_ms)
        await self.seal(grant)
        return grant

    async def running(self, job_id: str = "a", lease_ms: int = 60_000) -> GrantedJob:
        grant = await self.ready(job_id, lease_ms)
        await self.take(grant)
        return grant

    async def done(self, job_id: str = "a", ciphertext: bytes = b"result") -> GrantedJob:
        grant = await self.running(job_id)
        answer = await self.complete(grant, ciphertext=ciphertext)
        assert answer == Completed(accepted=True, duplicate=False)
        return grant

    async def seal(
        self, grant: GrantedJob, lease_id: str | None = None, recipient: str | None = None
    ) -> RoutedJob | TooLate:
        lease = LeaseRef(grant.stub.id, grant.lease_id if lease_id is None else lease_id)
        key_id = device().key_id if recipient is None else recipient
        return await self.store.seal(grant.site_id, lease, key_id, envelope())

    async def take(self, grant: GrantedJob, runner: str = "runner_1") -> SealedEnvelope | Refusal:
        return await self.store.take_payload(runner, reference(grant))

    async def complete(
        self,
        grant: GrantedJob,
        runner: str = "runner_1",
        ciphertext: bytes = b"result",
        disposition: Disposition = Disposition.OK,
    ) -> Completed | Refusal:
        result = envelope(ciphertext, direction=Direction.RESULT)
        return await self.store.complete(runner, reference(grant), result, disposition)

    async def release(
        self,
        grant: GrantedJob,
        reason: ReleaseReason = ReleaseReason.SHUTDOWN,
        retry_after_ms: int | None = None,
        runner: str = "runner_1",
    ) -> list[str]:
        return list(await self.store.release_leases(runner, [reference(grant)], reason, retry_after_ms))

    async def renew(
        self, *grants: GrantedJob, runner: str = "runner_1", lease_ms: int = 60_000
    ) -> Sequence[Verdict]:
        return await self.store.renew_leases(runner, [reference(grant) for grant in grants], lease_ms)

    async def job(self, job_id: str = "a", site: str = SITE) -> RoutedJob:
        job = await self.store.job(site, job_id)
        assert job is not None
        return job

    async def state(self, job_id: str = "a", site: str = SITE) -> str:
        """The state of a job, `gone` when it is not known."""
        job = await self.store.job(site, job_id)
        return "gone" if job is None else job.state.value

    async def notices(self, site: str = SITE) -> Sequence[Notice]:
        return await self.store.notices(site, 0, FAR_AHEAD)

    async def notice_kinds(self, site: str = SITE) -> list[str]:
        return [notice.kind.value for notice in await self.notices(site)]

    async def notice(self, kind: NoticeKind, job_id: str = "a", site: str = SITE) -> Notice:
        """The one row of this kind about a job."""
        rows = [row for row in await self.notices(site) if row.kind is kind and row.key.job_id == job_id]
        assert len(rows) == 1
        return rows[0]


def presence(runner: str = "runner_1", **fields: object) -> Presence:
    """A device that was seen, with the fields that matter to the case."""
    known: dict[str, object] = {"owner": "alice", "device": device(), **fields}
    return Presence(runner_id=runner, **known)  # type: ignore[arg-type]
