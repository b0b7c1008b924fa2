"""Indexes, and what a database has to have before a store works on it."""

import secrets
from typing import Any, Final

from pymongo import IndexModel, ReturnDocument
from pymongo.errors import OperationFailure

from durable_service.core.definition import TaskKey
from durable_service.mongo_connection import Document
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.mongo_document import FORMAT
from durable_service.store.mongo_positions import STORE
from durable_service.store.mongo_tasks import MongoTasks

# `$$NOW`, updates by pipeline, and member names with dots need it.
_LEAST_VERSION: Final = (5, 0)
# Long after the time of any nonce: whether one is over is asked of the time itself, never of this.
_NONCES_KEPT_SECONDS: Final = 3_600
_TENANT: Final = "identity.tenantId"


def _index(*names: str, partly: tuple[str, str | int] | None = None) -> IndexModel:
    """An index over the documents that have its member, or those alone where a member is above a bound."""
    options: dict[str, Any] = {"name": "by_" + "_".join(name.rsplit(".", 1)[-1] for name in names)}
    if partly is not None:
        # A bound, and not that the member is there: questions have bounds, and any planner sees that.
        options["partialFilterExpression"] = {partly[0]: {"$gt": partly[1]}}
    elif len(names) == 1:
        options["sparse"] = True
    return IndexModel([(name, 1) for name in names], **options)


_QUEUED: Final = ("sealwork.queue", "")
TASK_INDEXES: Final = (
    _index(_TENANT, "createdAt", "id"),
    _index(_TENANT, "identity.actorId", "createdAt", "id"),
    _index(_TENANT, "state", "updatedAt"),
    _index(_TENANT, "sealwork.queue", "sealwork.claimableAt", "id", partly=_QUEUED),
    _index(
        _TENANT,
        "sealwork.queue",
        "driver.id",
        "driver.version",
        "sealwork.claimableAt",
        "id",
        partly=_QUEUED,
    ),
    _index(_TENANT, "lease.workerId", "lease.expiresAt", partly=("lease.expiresAt", 0)),
    _index(_TENANT, "sealwork.position", partly=("sealwork.position", 0)),
    _index(_TENANT, "sealwork.claims", partly=("sealwork.claims", "")),
    _index(_TENANT, "sealwork.approvals", partly=("sealwork.approvals", "")),
    _index(_TENANT, "sealwork.waiting.expiresAt", partly=("sealwork.waiting.expiresAt", 0)),
    _index(_TENANT, "sealwork.unknown.since", partly=("sealwork.unknown.since", -1)),
    _index("sealwork.dueAt"),
    _index("sealwork.oldestEventAt"),
    _index("sealwork.position"),
    _index("sealwork.pending"),
    _index("sealwork.blobKeys"),
    _index("sealwork.texts"),
)


async def initialize(collections: MongoTasks) -> str:
    """Brings the database to this version; doing it again changes nothing.

    Returns:
        The name of the content, which lasts as long as it.

    Raises:
        StoreUnavailable: a newer version has written here, or the server is too old.
        PyMongoError: the database does not do what is asked.
    """
    await _check_server(collections)
    document = await _store_document(collections)
    if document["format"] > FORMAT:
        raise StoreUnavailable(
            StoreFault.NEWER_FORMAT,
            f"the store has format {document['format']}, and this version knows {FORMAT}: "
            "upgrade the service",
        )
    await collections.tasks.create_indexes(list(TASK_INDEXES))
    expired = IndexModel([("until", 1)], name="by_until", expireAfterSeconds=_NONCES_KEPT_SECONDS)
    await collections.nonces.create_indexes([expired])
    collections.clock.read(int(document["nowMs"]))
    return str(document["incarnation"])


async def foreign_keys(collections: MongoTasks) -> list[TaskKey]:
    """Tasks that another implementation left here before this one came; looked for once in a database."""
    document = await _store_document(collections)
    if document["adopted"]:
        return []
    found = collections.tasks.find({"sealwork": {"$exists": False}}, {"identity.tenantId": 1, "id": 1})
    return [TaskKey(item["identity"]["tenantId"], item["id"]) async for item in found]


async def note_adopted(collections: MongoTasks) -> None:
    """What other implementations left here is now in the indexes of this one."""
    await collections.store.update_one({"_id": STORE, "adopted": False}, {"$set": {"adopted": True}})


async def _check_server(collections: MongoTasks) -> None:
    try:
        answer = await collections.database.command("buildInfo")
    except OperationFailure as error:
        if error.code in {13, 18}:
            raise
        return
    version = tuple(answer.get("versionArray", _LEAST_VERSION)[:2])
    if version < _LEAST_VERSION:
        least = ".".join(map(str, _LEAST_VERSION))
        raise StoreUnavailable(
            StoreFault.FAILED,
            f"the server has version {answer.get('version')}: it must be {least} or newer",
        )


async def _store_document(collections: MongoTasks) -> Document:
    fresh = {
        "format": FORMAT,
        "incarnation": secrets.token_hex(8),
        "position": 0,
        "nowMs": 0,
        "adopted": False,
    }
    document = await collections.store.find_one_and_update(
        {"_id": STORE}, {"$setOnInsert": fresh}, upsert=True, return_document=ReturnDocument.AFTER
    )
    assert document is not None  # noqa: S101 - it was there, or was put there
    return document
