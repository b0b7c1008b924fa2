"""Every state against every operation, by the right caller under the right lease."""
# ruff: noqa: S101

from collections.abc import Awaitable, Callable, Mapping

import pytest

from relay_service.core.model import Disposition, GrantedJob, LeaseRef, Refusal, ReleaseReason
from relay_service.store.base import Completed, TooLate
from relay_service.store.contract.scene import (
    SITE,
    YEAR_2100_MS,
    Scene,
    StoreHarness,
    device,
    envelope,
    ids,
)

# For each situation: what the operation answers, and the state that the job is in afterwards.
TABLE: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "queued": {
        "claim": ("granted", "awaiting-payload"),
        "seal": ("stale-lease", "queued"),
        "seal another lease": ("stale-lease", "queued"),
        "seal another device": ("stale-lease", "queued"),
        "authorise": ("over", "queued"),
        "decline": ("over", "queued"),
        "take": ("not-found", "queued"),
        "complete": ("not-found", "queued"),
        "release": ("ignored", "queued"),
        "refuse": ("ignored", "queued"),
        "release bad envelope": ("ignored", "queued"),
        "renew": ("lost", "queued"),
        "cancel": ("true", "gone"),
        "acknowledge": ("nothing", "queued"),
        "deadline": ("ended", "gone"),
        "window": ("nothing", "queued"),
        "lease": ("nothing", "queued"),
    },
    "authorising": {
        "claim": ("nothing", "authorising"),
        "seal": ("stale-lease", "authorising"),
        "seal another lease": ("stale-lease", "authorising"),
        "seal another device": ("stale-lease", "authorising"),
        "authorise": ("granted", "awaiting-payload"),
        "decline": ("declined", "queued"),
        "take": ("not-found", "authorising"),
        "complete": ("not-found", "authorising"),
        "release": ("ignored", "authorising"),
        "refuse": ("ignored", "authorising"),
        "release bad envelope": ("ignored", "authorising"),
        "renew": ("lost", "authorising"),
        "cancel": ("true", "gone"),
        "acknowledge": ("nothing", "authorising"),
        "deadline": ("ended", "gone"),
        "window": ("requeued", "queued"),
        "lease": ("nothing", "authorising"),
    },
    "awaiting-payload": {
        "claim": ("nothing", "awaiting-payload"),
        "seal": ("sealed", "ready"),
        "seal another lease": ("stale-lease", "awaiting-payload"),
        "seal another device": ("wrong-recipient", "awaiting-payload"),
        "authorise": ("granted", "awaiting-payload"),
        "decline": ("over", "awaiting-payload"),
        "take": ("not-ready", "awaiting-payload"),
        "complete": ("accepted", "done"),
        "release": ("released", "queued"),
        "refuse": ("released", "queued"),
        "release bad envelope": ("released", "queued"),
        "renew": ("active", "awaiting-payload"),
        "cancel": ("true", "awaiting-payload"),
        "acknowledge": ("nothing", "awaiting-payload"),
        "deadline": ("ended", "gone"),
        "window": ("requeued", "queued"),
        "lease": ("nothing", "awaiting-payload"),
    },
    "ready": {
        "claim": ("nothing", "ready"),
        "seal": ("too-late", "ready"),
        "seal another lease": ("too-late", "ready"),
        "seal another device": ("too-late", "ready"),
        "authorise": ("granted", "ready"),
        "decline": ("over", "ready"),
        "take": ("payload", "running"),
        "complete": ("accepted", "done"),
        "release": ("released", "queued"),
        "refuse": ("released", "queued"),
        "release bad envelope": ("released", "queued"),
        "renew": ("active", "ready"),
        "cancel": ("true", "ready"),
        "acknowledge": ("nothing", "ready"),
        "deadline": ("ended", "gone"),
        "window": ("nothing", "ready"),
        "lease": ("requeued", "queued"),
    },
    "running": {
        "claim": ("nothing", "running"),
        "seal": ("too-late", "running"),
        "seal another lease": ("too-late", "running"),
        "seal another device": ("too-late", "running"),
        "authorise": ("granted", "running"),
        "decline": ("over", "running"),
        "take": ("payload", "running"),
        "complete": ("accepted", "done"),
        "release": ("released", "queued"),
        "refuse": ("released", "queued"),
        "release bad envelope": ("released", "queued"),
        "renew": ("active", "running"),
        "cancel": ("true", "running"),
        "acknowledge": ("nothing", "running"),
        "deadline": ("ended", "gone"),
        "window": ("nothing", "running"),
        "lease": ("requeued", "queued"),
    },
    "done": {
        "claim": ("nothing", "done"),
        "seal": ("too-late", "done"),
        "seal another lease": ("too-late", "done"),
        "seal another device": ("too-late", "done"),
        "authorise": ("over", "done"),
        "decline": ("over", "done"),
        "take": ("terminal", "done"),
        "complete": ("duplicate", "done"),
        "release": ("ignored", "done"),
        "refuse": ("ignored", "done"),
        "release bad envelope": ("ignored", "done"),
        "renew": ("completed", "done"),
        "cancel": ("true", "done"),
        "acknowledge": ("settled", "gone"),
        "deadline": ("nothing", "done"),
        "window": ("nothing", "done"),
        "lease": ("nothing", "done"),
    },
    "awaiting-payload, cancelled": {
        "claim": ("nothing", "awaiting-payload"),
        "seal": ("cancelled", "awaiting-payload"),
        "seal another lease": ("cancelled", "awaiting-payload"),
        "seal another device": ("cancelled", "awaiting-payload"),
        "authorise": ("over", "awaiting-payload"),
        "decline": ("over", "awaiting-payload"),
        "take": ("cancelled", "awaiting-payload"),
        "complete": ("accepted", "done"),
        "release": ("released", "gone"),
        "refuse": ("released", "gone"),
        "release bad envelope": ("released", "gone"),
        "renew": ("cancel-requested", "awaiting-payload"),
        "cancel": ("true", "awaiting-payload"),
        "acknowledge": ("nothing", "awaiting-payload"),
        "deadline": ("ended", "gone"),
        "window": ("ended", "gone"),
        "lease": ("nothing", "awaiting-payload"),
    },
    "ready, cancelled": {
        "claim": ("nothing", "ready"),
        "seal": ("cancelled", "ready"),
        "seal another lease": ("cancelled", "ready"),
        "seal another device": ("cancelled", "ready"),
        "authorise": ("over", "ready"),
        "decline": ("over", "ready"),
        "take": ("cancelled", "ready"),
        "complete": ("accepted", "done"),
        "release": ("released", "gone"),
        "refuse": ("released", "gone"),
        "release bad envelope": ("released", "gone"),
        "renew": ("cancel-requested", "ready"),
        "cancel": ("true", "ready"),
        "acknowledge": ("nothing", "ready"),
        "deadline": ("ended", "gone"),
        "window": ("nothing", "ready"),
        "lease": ("ended", "gone"),
    },
    "running, cancelled": {
        "claim": ("nothing", "running"),
        "seal": ("cancelled", "running"),
        "seal another lease": ("cancelled", "running"),
        "seal another device": ("cancelled", "running"),
        "authorise": ("over", "running"),
        "decline": ("over", "running"),
        "take": ("cancelled", "running"),
        "complete": ("accepted", "done"),
        "release": ("released", "gone"),
        "refuse": ("released", "gone"),
        "release bad envelope": ("released", "gone"),
        "renew": ("cancel-requested", "running"),
        "cancel": ("true", "running"),
        "acknowledge": ("nothing", "running"),
        "deadline": ("ended", "gone"),
        "window": ("nothing", "running"),
        "lease": ("ended", "gone"),
    },
}

_CELLS = [(situation, operation) for situation, row in TABLE.items() for operation in row]
_INVENTED = "invented"


class StateTableCases:
    """The whole table, cell by cell."""

    @pytest.mark.parametrize(("situation", "operation"), _CELLS)
    async def test_cell(self, store_harness: StoreHarness, situation: str, operation: str) -> None:
        play = _Play(Scene(store_harness.store), store_harness)
        await play.arrange(situation, operation)
        answer = await play.perform(operation)
        assert (answer, await play.scene.state("a")) == TABLE[situation][operation]


class _Play:
    """One cell: a job brought into its situation, and one operation on it."""

    def __init__(self, scene: Scene, harness: StoreHarness) -> None:
        self.scene = scene
        self.store = scene.store
        self.harness = harness
        self.lease = LeaseRef("a", _INVENTED)

    async def arrange(self, situation: str, operation: str) -> None:
        deadline = await self.store.now() + 4_000 if operation == "deadline" else YEAR_2100_MS
        await self.scene.enqueue("a", deadline_at_ms=deadline)
        state, _, cancelled = situation.partition(", ")
        if state != "queued":
            lease_ms = 4_000 if operation == "lease" else 60_000
            (grant,) = await self.scene.claim(lease_ms=lease_ms, authorise=state == "authorising")
            self.lease = LeaseRef("a", grant.lease_id)
            await self._advance_to(state, grant)
        if cancelled:
            await self.store.cancel(SITE, "a")
        assert await self.scene.state("a") == state

    async def _advance_to(self, state: str, grant: GrantedJob) -> None:
        if state in {"ready", "running", "done"}:
            await self.scene.seal(grant)
        if state in {"running", "done"}:
            await self.scene.take(grant)
        if state == "done":
            await self.scene.complete(grant)

    async def perform(self, operation: str) -> str:
        operations: Mapping[str, Callable[[], Awaitable[str]]] = {
            "claim": self._claim,
            "seal": lambda: self._seal(self.lease.lease_id, 1),
            "seal another lease": lambda: self._seal("another", 1),
            "seal another device": lambda: self._seal(self.lease.lease_id, 2),
            "authorise": self._authorise,
            "decline": self._decline,
            "take": self._take,
            "complete": self._complete,
            "release": lambda: self._release(ReleaseReason.SHUTDOWN),
            "refuse": lambda: self._release(ReleaseReason.REFUSED),
            "release bad envelope": lambda: self._release(ReleaseReason.BAD_ENVELOPE),
            "renew": self._renew,
            "cancel": self._cancel,
            "acknowledge": self._acknowledge,
            "deadline": lambda: self._pass_time(4_000),
            "window": lambda: self._pass_time(10_000),
            "lease": lambda: self._pass_time(4_000),
        }
        return await operations[operation]()

    async def _claim(self) -> str:
        return "granted" if ids(await self.scene.claim("runner_2")) == ["a"] else "nothing"

    async def _seal(self, lease_id: str, recipient: int) -> str:
        lease = LeaseRef("a", lease_id)
        answer = await self.store.seal(SITE, lease, device(recipient).key_id, envelope())
        return answer.refusal.value if isinstance(answer, TooLate) else "sealed"

    async def _authorise(self) -> str:
        granted = await self.store.authorise_grant("runner_1", self.lease, b"signed", 60_000)
        return "over" if granted is None else "granted"

    async def _decline(self) -> str:
        declined = await self.store.decline_grant("runner_1", self.lease, refused=False)
        return "declined" if declined else "over"

    async def _take(self) -> str:
        answer = await self.store.take_payload("runner_1", self.lease)
        return answer.value if isinstance(answer, Refusal) else "payload"

    async def _complete(self) -> str:
        finished = await self.store.job(SITE, "a")
        disposition = finished.disposition if finished else None
        answer = await self.store.complete("runner_1", self.lease, envelope(), Disposition.OK)
        if isinstance(answer, Refusal):
            return answer.value
        assert answer == Completed(accepted=disposition is None, duplicate=disposition is not None)
        return "accepted" if answer.accepted else "duplicate"

    async def _release(self, reason: ReleaseReason) -> str:
        released = await self.store.release_leases("runner_1", [self.lease], reason)
        return "released" if list(released) == ["a"] else "ignored"

    async def _renew(self) -> str:
        (verdict,) = await self.store.renew_leases("runner_1", [self.lease], 60_000)
        return verdict.state.value

    async def _cancel(self) -> str:
        return str(await self.store.cancel(SITE, "a")).lower()

    async def _acknowledge(self) -> str:
        return "settled" if list(await self.store.acknowledge(SITE, ["a"])) == ["a"] else "nothing"

    async def _pass_time(self, milliseconds: int) -> str:
        await self.harness.advance(milliseconds)
        swept = await self.store.sweep()
        if [key.job_id for key in swept.requeued] == ["a"]:
            return "requeued"
        return "ended" if [key.job_id for key in swept.ended] == ["a"] else "nothing"
