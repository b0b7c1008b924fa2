"""Ciphertext on its way to and from the server: small ones go along with a call, large ones beside it.

A large one is written under a name of its own just before the call, which moves it to its place: so
no script has to hold it. One that no call picks up is gone after a minute.
"""

import secrets
from typing import Any

from relay_service.core.limits import INLINE_BODY_BYTES
from relay_service.core.model import RoutedJob, SealedEnvelope
from relay_service.store.valkey_names import site_tag
from relay_service.store.valkey_records import Record, UnreadableError, job_from, read
from relay_service.store.valkey_sites import Sites

_STAGED_KEPT_MS = 60_000


class ChangedError(Exception):
    """The ciphertext went away between two looks: the job has moved on."""


class Envelopes:
    """Carries ciphertext of one deployment."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._functions = sites.functions

    async def stage(self, tag: str, envelope: SealedEnvelope) -> tuple[bytes, str]:
        """Makes a ciphertext ready to go with a call: the bytes themselves or a name for them.

        Raises:
            StoreUnavailable: the server cannot be asked.
        """
        if len(envelope.ciphertext) <= INLINE_BODY_BYTES:
            return envelope.ciphertext, ""
        name = secrets.token_hex(16)
        key = f"{self._sites.base(tag)}staged:{name}"
        await self._functions.command("SET", key, envelope.ciphertext, "PX", _STAGED_KEPT_MS)
        return b"", name

    async def payload(self, tag: str, lease_id: str) -> bytes | None:
        """The payload that was sealed to a grant, None when there is none any more."""
        key = f"{self._sites.base(tag)}payload:{lease_id}"
        found: bytes | None = await self._functions.command("GET", key)
        return found

    async def job(self, site_id: str, answer: Any) -> RoutedJob:
        """A job as an operation answered it, with the ciphertext that did not come along.

        Raises:
            UnreadableError: this release cannot read it.
            ChangedError: it has changed meanwhile and is to be read again.
            StoreUnavailable: the server cannot be asked.
        """
        text, payload, result = answer
        record = read(text)
        # One after the other: nearly always there is nothing to fetch, and a task for each would cost more.
        payload = await self._complete(site_id, record, "payload", payload)
        result = await self._complete(site_id, record, "result", result)
        return job_from(site_id, record, payload, result)

    async def _complete(
        self, site_id: str, record: Record, leg: str, ciphertext: bytes | None
    ) -> bytes | None:
        if ciphertext is not None or record.get(leg) is None:
            return ciphertext
        try:
            name = record["claim"]["lease_id"] if leg == "payload" else record["stub"]["id"]
        except (KeyError, TypeError) as error:
            raise UnreadableError from error
        key = f"{self._sites.base(site_tag(site_id))}{leg}:{name}"
        found: bytes | None = await self._functions.command("GET", key)
        if found is None:
            raise ChangedError
        return found
