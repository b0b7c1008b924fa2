"""What holders do with their leases. A lease leads to its site; nobody else's jobs are looked at."""

import asyncio
from collections.abc import Sequence

import orjson

from relay_service.core.identity import encode_base64url
from relay_service.core.model import (
    Disposition,
    GrantedJob,
    LeaseEnd,
    LeaseRef,
    Refusal,
    ReleaseReason,
    SealedEnvelope,
    Verdict,
    VerdictState,
)
from relay_service.store.base import Completed
from relay_service.store.valkey_envelopes import Envelopes
from relay_service.store.valkey_names import tag_of_lease
from relay_service.store.valkey_records import (
    Record,
    UnreadableError,
    envelope_from,
    grant_number,
    granted_from,
    header_text,
    read,
)
from relay_service.store.valkey_runners import Runners, by_site
from relay_service.store.valkey_sites import Sites


class Holders:
    """The operations of `RoutingStore` that a holder calls; see there."""

    def __init__(self, sites: Sites, runners: Runners, envelopes: Envelopes) -> None:
        self._sites = sites
        self._runners = runners
        self._envelopes = envelopes

    async def authorise_grant(
        self, runner_id: str, lease: LeaseRef, signed_grant: bytes, lease_ms: int
    ) -> GrantedJob | None:
        tag = tag_of_lease(lease.lease_id)
        if tag is None:
            return None
        named = (runner_id, lease.job_id, lease.lease_id)
        found = await self._sites.ask_tag(tag, "authorise", *named, encode_base64url(signed_grant), lease_ms)
        if not found:
            return None
        site_id, text = found
        try:
            return granted_from(site_id.decode(), read(text))
        except UnreadableError:
            self._sites.note_unreadable(site_id.decode(), lease.job_id)
            return None

    async def decline_grant(
        self, runner_id: str, lease: LeaseRef, *, refused: bool, retry_after_ms: int | None
    ) -> bool:
        tag = tag_of_lease(lease.lease_id)
        if tag is None:
            return False
        retry_after = "" if retry_after_ms is None else str(retry_after_ms)
        marks = ("1" if refused else "", retry_after)
        (done,) = await self._sites.ask_tag(tag, "decline", runner_id, lease.job_id, lease.lease_id, *marks)
        return bool(done)

    async def take_payload(self, runner_id: str, lease: LeaseRef) -> SealedEnvelope | Refusal:
        tag = tag_of_lease(lease.lease_id)
        while tag is not None:
            outcome, *parts = await self._sites.ask_tag(
                tag, "take_payload", runner_id, lease.job_id, lease.lease_id
            )
            if outcome != b"payload":
                refusal = Refusal(outcome.decode())
                if refusal is Refusal.NOT_FOUND:
                    break
                return refusal
            header, ciphertext = parts
            if ciphertext is None:
                ciphertext = await self._envelopes.payload(tag, lease.lease_id)
            if ciphertext is not None:
                return envelope_from(read(header), ciphertext)
            # The lease ended between the two looks; asked again, the site says so.
        return await self._unresolved(runner_id, lease)

    async def complete(
        self, runner_id: str, lease: LeaseRef, envelope: SealedEnvelope, disposition: Disposition
    ) -> Completed | Refusal:
        tag = tag_of_lease(lease.lease_id)
        if tag is None:
            return await self._unresolved(runner_id, lease)
        ciphertext, staged = await self._envelopes.stage(tag, envelope)
        named = (runner_id, lease.job_id, lease.lease_id, disposition.value)
        outcome, *rest = await self._sites.ask_tag(
            tag, "complete", *named, header_text(envelope), ciphertext, staged
        )
        if outcome in {b"accepted", b"duplicate"}:
            return Completed(accepted=outcome == b"accepted", duplicate=outcome == b"duplicate")
        refusal = Refusal(outcome.decode())
        if refusal is Refusal.NOT_FOUND:
            refusal = await self._unresolved(runner_id, lease)
            if refusal is Refusal.NOT_FOUND and rest[0]:
                # Collected already, and the finisher never heard that its result arrived.
                return Completed(accepted=False, duplicate=True)
        return refusal

    async def release_leases(
        self, runner_id: str, leases: Sequence[LeaseRef], reason: ReleaseReason, retry_after_ms: int | None
    ) -> list[str]:
        retry_after = "" if retry_after_ms is None else str(retry_after_ms)
        released: list[int] = []
        for tag, indexes in by_site(leases).items():
            named = _named(leases, indexes)
            answers = await self._sites.ask_one_of_many(
                tag, "", "release", runner_id, named, reason.value, retry_after
            )
            if answers is None:
                continue
            released += [index for index, answer in zip(indexes, answers, strict=True) if answer]
        return [leases[index].job_id for index in sorted(released)]

    async def renew_leases(self, runner_id: str, leases: Sequence[LeaseRef], lease_ms: int) -> list[Verdict]:
        verdicts = [Verdict(lease, VerdictState.LOST) for lease in leases]
        groups = by_site(leases)
        if groups:
            await self._runners.note(runner_id, *groups)
        answers = await asyncio.gather(
            *(
                self._sites.ask_one_of_many(tag, "", "renew", runner_id, _named(leases, indexes), lease_ms)
                for tag, indexes in groups.items()
            )
        )
        for indexes, answer in zip(groups.values(), answers, strict=True):
            # At a site whose keys are broken nothing can be finished: its leases are lost, and no others.
            now_ms, words = (0, ()) if answer is None else answer
            for index, word in zip(indexes, words, strict=False):
                verdicts[index] = _verdict(leases[index], word.decode(), now_ms, lease_ms)
        return verdicts

    async def acknowledge_cancels(self, runner_id: str, leases: Sequence[LeaseRef]) -> None:
        for tag, indexes in by_site(leases).items():
            named = _named(leases, indexes)
            await self._sites.ask_one_of_many(tag, "", "acknowledge_cancels", runner_id, named)

    async def held(self, runner_id: str) -> list[GrantedJob]:
        return [granted for _, granted in await self._held(runner_id)]

    async def cancel_requests(self, runner_id: str) -> list[LeaseRef]:
        return [
            LeaseRef(granted.stub.id, granted.lease_id)
            for record, granted in await self._held(runner_id)
            if record.get("cancelled") and not record.get("cancel_acknowledged")
        ]

    async def _held(self, runner_id: str) -> list[tuple[Record, GrantedJob]]:
        """What a runner holds, in the order of the grants."""
        found: list[tuple[int, Record, GrantedJob]] = []
        for site_id, texts in await self._runners.ask_everywhere(runner_id, "held"):
            for text in texts:
                try:
                    record = read(text)
                    granted = granted_from(site_id.decode(), record)
                    found.append((grant_number(record), record, granted))
                except (UnreadableError, ValueError):
                    self._sites.note_unreadable(site_id.decode(), "")
        in_order = sorted(found, key=lambda entry: entry[0])
        return [(record, granted) for _, record, granted in in_order]

    async def _unresolved(self, runner_id: str, lease: LeaseRef) -> Refusal:
        """The word on a lease that leads to no job: stale for one who holds a job of that id.

        Only what the runner itself holds is looked at, or the answer would tell of others' jobs.
        """
        holding = await self._runners.ask_everywhere(runner_id, "holds", lease.job_id)
        return Refusal.STALE_LEASE if any(found for (found,) in holding) else Refusal.NOT_FOUND


def _named(leases: Sequence[LeaseRef], indexes: Sequence[int]) -> bytes:
    return orjson.dumps([[leases[index].job_id, leases[index].lease_id] for index in indexes])


def _verdict(lease: LeaseRef, word: str, now_ms: int, lease_ms: int) -> Verdict:
    state, _, end = word.partition(" ")
    verdict = VerdictState(state)
    if verdict in {VerdictState.ACTIVE, VerdictState.CANCEL_REQUESTED}:
        return Verdict(lease, verdict, lease_ms, now_ms + lease_ms)
    return Verdict(lease, verdict, end=LeaseEnd(end) if end else None)
