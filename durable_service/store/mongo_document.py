"""One task, one document.

What other implementations know stands at the top of it. The member `sealwork` is this one's own: the record
in the form of every store here, the list of the journal, the names that writes are recognised by, and what
the indexes need. The record is read from there, so what was written comes back byte for byte.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_service.core.availability import availability
from durable_service.core.binding import task_key_digest
from durable_service.core.definition import TaskKey
from durable_service.core.lapses import due_at_ms
from durable_service.core.model import TaskRecord, Tombstone
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.indexed_parts import undecided_approvals, unknown_actions
from durable_service.store.mongo_foreign import foreign_record
from durable_service.store.mongo_journal import Entry, Rewritten, entries_of, entry_of
from durable_service.store.mongo_members import definition_members, lease_member, progress_members
from durable_service.store.record_document import (
    decode_record,
    encode_definition,
    encode_lease,
    encode_progress,
)

FORMAT: Final = 1
# Of a document, all that a record is read from.
OWN: Final = {"sealwork": 1, "revision": 1}


@dataclass(frozen=True, slots=True)
class Stored:
    """A task as it was read.

    Attributes:
        write: the name of the write that it is from; None when another implementation made it.
    """

    id: str
    record: TaskRecord
    journal: tuple[Entry, ...]
    write: str | None

    @property
    def unchanged(self) -> dict[str, Any]:
        """The filter that finds this document while it is as it was read."""
        own = {"sealwork.write": self.write} if self.write else {"sealwork": {"$exists": False}}
        return {"_id": self.id, "revision": self.record.revision, **own}


def document_id(key: TaskKey) -> str:
    return task_key_digest(key)


def claim_name(worker_id: str, claim_id: str) -> str:
    """A worker's claim as one text; no id has a line break in it."""
    return f"{worker_id}\n{claim_id}"


def is_foreign(document: Mapping[str, Any]) -> bool:
    """Whether another implementation wrote it, and this one never."""
    return "sealwork" not in document


def stored_of(document: dict[str, Any]) -> Stored:
    """A document with the members of `OWN`, or a whole foreign one.

    Raises:
        StoreUnavailable: it was written by a newer version, or cannot be read.
    """
    own = document.get("sealwork")
    try:
        if own is None:
            record, events = foreign_record(document)
            return Stored(document["_id"], record, tuple(map(entry_of, events)), None)
        _check_format(own)
        record = decode_record(own["definition"], own["progress"], own.get("lease"))
        stored = Stored(document["_id"], record, entries_of(own["journal"]), own["write"])
    except (KeyError, ValueError, TypeError, AttributeError):
        raise StoreUnavailable(StoreFault.CORRUPT, "a record in the store cannot be read") from None
    if document["revision"] != record.revision:
        raise StoreUnavailable(
            StoreFault.CORRUPT, "another program has changed a task of this store: it cannot be gone on with"
        )
    return stored


def tombstone_of(document: dict[str, Any]) -> Tombstone | None:
    """What a document says of a purged task; None when it has the task itself."""
    own = document.get("sealwork") or {}
    member = own.get("tombstone")
    if member is None:
        return None
    _check_format(own)
    return Tombstone(TaskKey(member["tenantId"], member["taskId"]), member["digest"], member["purgedAt"])


def new_document(record: TaskRecord, journal: Rewritten, write: str) -> dict[str, Any]:
    own = {
        "format": FORMAT,
        "write": write,
        "pending": write,
        "definition": encode_definition(record),
        "progress": encode_progress(record),
        "lease": encode_lease(record.lease),
        "journal": [entry.document for entry in journal.entries],
        **_places(record, journal.entries),
    }
    members = {"_id": document_id(record.key), **definition_members(record), **progress_members(record, None)}
    return {**_present(members), "sealwork": _present(own)}


def update_document(stored: Stored, record: TaskRecord, journal: Rewritten, write: str) -> dict[str, Any]:
    """The update that makes one record of the other; it writes what is different alone."""
    if stored.write is None:
        own = new_document(record, journal, write)["sealwork"]
        return _update(progress_members(record, None) | {"sealwork": own})
    old = _places(stored.record, stored.journal)
    new = _places(record, journal.entries)
    own = {name: value for name, value in new.items() if value != old[name]}
    own |= {"write": write, "lease": encode_lease(record.lease)}
    members: dict[str, Any] = {"lease": lease_member(record.lease)}
    if record.revision != stored.record.revision:
        own |= {"progress": encode_progress(record), "pending": write, "position": None}
        members = progress_members(record, stored.record)
    if journal.added is None:
        own["journal"] = [entry.document for entry in journal.entries]
    update = _update(members | {f"sealwork.{name}": value for name, value in own.items()})
    if journal.added:
        update["$push"] = {"sealwork.journal": {"$each": [entry.document for entry in journal.added]}}
    return update


def trim_document(kept: tuple[Entry, ...], write: str) -> dict[str, Any]:
    """The update that leaves the newest entries of a journal alone, and tells nobody of it."""
    return _update(
        {
            "sealwork.write": write,
            "sealwork.journal": [entry.document for entry in kept],
            "sealwork.oldestEventAt": kept[0].at_ms if kept else None,
        }
    )


def tombstone_document(stored: Stored, tombstone: Tombstone, write: str) -> dict[str, Any]:
    """What takes the place of a purged task: to other implementations it is gone, and its id is taken."""
    key = tombstone.key
    member = {
        "tenantId": key.tenant_id,
        "taskId": key.task_id,
        "digest": tombstone.digest,
        "purgedAt": tombstone.purged_at_ms,
    }
    own = {"format": FORMAT, "write": write, "tombstone": member, "texts": stored.id}
    return {"_id": stored.id, "sealwork": own}


def _update(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sets members; takes away those that are None."""
    update: dict[str, Any] = {"$set": _present(changes)}
    gone = [name for name, value in changes.items() if value is None]
    if gone:
        update["$unset"] = dict.fromkeys(gone, "")
    return update


def _places(record: TaskRecord, journal: Iterable[Entry]) -> dict[str, Any]:
    """What the indexes are over, beside the members that all implementations have."""
    place, lease = availability(record), record.lease
    oldest = next(iter(journal), None)
    return {
        "queue": None if place is None else place.queue.value,
        "claimableAt": None if place is None else place.at_ms,
        "dueAt": due_at_ms(record),
        "claims": [claim_name(item.worker_id, item.id) for item in record.attempts] or None,
        "leaseClaim": None if lease is None else lease.claim_id,
        "oldestEventAt": None if oldest is None else oldest.at_ms,
        "approvals": list(record.approvals) or None,
        "waiting": _waiting(record) or None,
        "unknown": _unknown(record) or None,
        "blobKeys": sorted({item.blob_key for item in record.artifacts.values()}) or None,
    }


def _waiting(record: TaskRecord) -> list[dict[str, Any]]:
    """Approvals that can be decided until they expire."""
    undecided = undecided_approvals(record)
    return [
        {
            "id": item.id,
            "actorId": item.actor_id,
            "expiresAt": item.expires_at_ms,
            "createdAt": item.created_at_ms,
        }
        for item in record.approvals.values()
        if item.id in undecided
    ]


def _unknown(record: TaskRecord) -> list[dict[str, Any]]:
    """Effects whose outcome nobody knows."""
    unknown = unknown_actions(record)
    return [
        {"id": action.id, "since": action.updated_at_ms}
        for action in record.actions.values()
        if action.id in unknown
    ]


def _check_format(own: Mapping[str, Any]) -> None:
    if own["format"] > FORMAT:
        raise StoreUnavailable(
            StoreFault.NEWER_FORMAT,
            f"a task has format {own['format']}, and this version reads up to {FORMAT}: upgrade the service",
        )


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
