"""Documents are those of the other implementation, and what it wrote is read as it was meant."""

from typing import Any

import pytest

pytest.importorskip("pymongo")

from durable_service.core.admission import TaskCreation
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.claims import ClaimRequest, claim
from durable_service.core.definition import Budget, Driver, Identity, TaskDefinition, TaskKey
from durable_service.core.extensions import update_extension
from durable_service.core.model import Attempt, Extension, Lease, TaskEvent
from durable_service.core.states import ActionState, TaskState
from durable_service.store.base import StoreFault, StoreUnavailable, TaskQuery
from durable_service.store.contract.scene import refusal
from durable_service.store.mongo_document import document_id, stored_of
from durable_service.store.mongo_foreign import foreign_record
from tests.durable_service.store.mongo_fixture import MISSING, MongoServer, fresh_database

if not MISSING:
    from durable_service.store.mongo import MongoTaskStore

KEY = TaskKey("tenant", "task")
ID = "sha256:efd1cc6da8f133269764c5b84992548b744982927d7a415d7915c1412af337e4"
IDENTITY = {
    "actorId": "actor",
    "rootRunId": "root",
    "runId": "run",
    "sessionId": "session",
    "tenantId": "tenant",
}
PREPARED = "sha256:be2843bde9ba5f2bfee72d7479dba9f998e5ab28ed352c5423e6c49e49bb98c7"
# As the other implementation writes it: a task with one dispatched action, one waiting approval, a journal.
# Its driver has no integers of 64 bits, so instants are doubles.
FOREIGN: dict[str, Any] = {
    "_id": ID,
    "schemaVersion": 1,
    "id": "task",
    "identity": IDENTITY,
    "manifestHash": "sha256:manifest",
    "inputRef": "input:one",
    "policyRevision": 1,
    "grantRefs": ["grant:send"],
    "budget": {"maxAttempts": 3, "maxTokens": 1_000_000, "maxCostMicros": 100_000_000},
    "driver": {"id": "fixture", "version": 1},
    "input": {"b": 1.0, "a": "é"},
    "state": "running",
    "revision": 4,
    "fence": 1,
    "createdAt": 1_700_000_000_000.0,
    "updatedAt": 1_700_000_000_500.0,
    "lease": {"workerId": "w", "fence": 1, "expiresAt": 1_700_000_030_000.0},
    "attempts": [{"id": "attempt-1", "workerId": "w", "fence": 1, "startedAt": 1_700_000_000_100.0}],
    "reservedTokens": 5,
    "reservedCostMicros": 0,
    "actions": {
        "a.b": {
            "id": "a.b",
            "connectorVersion": "fixture@1",
            "destination": "inbox",
            "args": {"message": "hello"},
            "policyRevision": 1,
            "grantRefs": ["grant:send"],
            "identity": IDENTITY,
            "preparedHash": PREPARED,
            "idempotencyKey": "sha256:key",
            "state": "executing",
            "dispatchFence": 1,
        }
    },
    "approvals": {
        "approval-1": {
            "id": "approval-1",
            "actionId": "a.b",
            "actorId": "ann",
            "preparedHash": PREPARED,
            "policyRevision": 1,
            "expiresAt": 1_700_000_060_000.0,
            "decision": "pending",
            "consumed": False,
        }
    },
    "extensions": {
        "host.note": {"$x": [1.5, None]},
        "agentium.records.v1": {
            "next": 3,
            "events": [
                {
                    "sequence": 2,
                    "type": "task.state",
                    "at": 1_700_000_000_100.0,
                    "attemptId": "attempt-1",
                    "data": {"state": "running", "before": "queued"},
                }
            ],
            "artifacts": {
                "output": {
                    "id": "output",
                    "blobKey": "183556fc06263bf660738f3c12e7682e1c7123a43458d13225dd3ff0cb65adaf",
                    "digest": "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
                    "bytes": 5,
                    "mimeType": "text/plain",
                    "expiresAt": 1_700_000_090_000.0,
                }
            },
            "snapshots": {},
        },
    },
}


def test_a_document_of_the_other_implementation_is_a_record() -> None:
    record, events = foreign_record(FOREIGN)
    assert record.key == KEY
    assert record.definition == TaskDefinition(
        "task",
        Identity("tenant", "actor", "session", "run", "root"),
        "sha256:manifest",
        "input:one",
        1,
        ("grant:send",),
        Budget(),
        Driver("fixture", 1),
        CanonicalJson('{"a":"é","b":1}'),
    )
    assert (record.state, record.revision, record.fence) == (TaskState.RUNNING, 4, 1)
    assert (record.created_at_ms, record.updated_at_ms) == (1_700_000_000_000, 1_700_000_000_500)
    assert record.attempts == (Attempt("attempt-1", "w", 1, 1_700_000_000_100),)
    assert isinstance(record.lease, Lease)
    assert (record.lease.worker_id, record.lease.expires_at_ms) == ("w", 1_700_000_030_000)
    assert record.lease.claim_id == "attempt-1"
    action = record.actions["a.b"]
    assert (action.state, action.args) == (ActionState.EXECUTING, '{"message":"hello"}')
    assert (action.dispatch_fence, action.prepared_hash) == (1, PREPARED)
    assert record.approvals["approval-1"].expires_at_ms == 1_700_000_060_000
    assert dict(record.extensions) == {
        "host.note": Extension("host.note", 1, CanonicalJson('{"$x":[1.5,null]}'))
    }
    assert record.artifacts["output"].size_bytes == 5
    assert (record.reserved_tokens, record.last_sequence) == (5, 2)
    data = CanonicalJson('{"before":"queued","state":"running"}')
    assert events == (TaskEvent(2, "task.state", 1_700_000_000_100, "attempt-1", 1, data),)


def test_the_name_of_a_document() -> None:
    assert document_id(KEY) == ID


async def test_what_was_there_before_is_gone_on_with(mongo_server: MongoServer) -> None:
    url = fresh_database(mongo_server)
    early = MongoTaskStore(url)
    await early._collections.tasks.insert_one(dict(FOREIGN))
    await early.close()
    store = await MongoTaskStore.open(url)
    try:
        assert (await store.due(10)) == [KEY]
        page = await store.events(KEY, 1, 10)
        assert ([event.sequence for event in page.events], page.earliest) == ([2], 2)
        # The lease of long ago is over, so the task goes to another worker for recovery.
        (found,) = await store.list_tasks(TaskQuery("tenant"), None, 10)
        assert found.key == KEY
        decision = await store.update(
            KEY, lambda record, now: update_extension(record, "more.$x", CanonicalJson("1"), now)
        )
        assert decision.record.revision == 5
        document = await store._collections.tasks.find_one({"_id": ID})
        assert document is not None
        assert document["extensions"] == {"host.note": {"$x": [1.5, None]}, "more.$x": 1}
        assert document["actions"]["a.b"]["args"] == {"message": "hello"}
        assert (document["revision"], document["schemaVersion"]) == (5, 1)
    finally:
        await store.close()


async def test_what_is_written_has_the_members_that_others_know(mongo_server: MongoServer) -> None:
    store = await MongoTaskStore.open(fresh_database(mongo_server))
    try:
        definition = TaskDefinition(
            "task",
            Identity("tenant", "actor", "session", "run", "root"),
            "sha256:manifest",
            "input:one",
            1,
            ("grant:send",),
        )
        # A name with a NUL and an unpaired surrogate have no form in the database, and are kept all the same.
        odd = CanonicalJson('{"a\\u0000b":1}')
        half = CanonicalJson('"\\ud800"')
        large = CanonicalJson("100000000000000000000")
        extensions = {"$odd": odd, "half": half, "large.number": large}
        created = await store.create(TaskCreation(definition, extensions))
        document = await store._collections.tasks.find_one({"_id": ID}, {"_id": 0, "sealwork": 0})
        at_ms = created.record.created_at_ms
        assert document == {
            "actions": {},
            "approvals": {},
            "attempts": [],
            "budget": {"maxAttempts": 3, "maxCostMicros": 100_000_000, "maxTokens": 1_000_000},
            "createdAt": at_ms,
            "extensions": {"large.number": 1e20},
            "fence": 0,
            "grantRefs": ["grant:send"],
            "id": "task",
            "identity": IDENTITY,
            "inputRef": "input:one",
            "manifestHash": "sha256:manifest",
            "policyRevision": 1,
            "reservedCostMicros": 0,
            "reservedTokens": 0,
            "revision": 0,
            "schemaVersion": 1,
            "state": "queued",
            "updatedAt": at_ms,
        }
        record = await store.get(KEY)
        assert record is not None
        assert {name: item.value for name, item in record.extensions.items()} == extensions
        await store.update(KEY, lambda task, now: claim(task, ClaimRequest("w", "c", 30_000), now))
        document = await store._collections.tasks.find_one({"_id": ID}, {"_id": 0, "sealwork": 0})
        assert document is not None
        claimed = document["updatedAt"]
        assert document["lease"] == {"workerId": "w", "fence": 1, "expiresAt": claimed + 30_000}
        assert document["attempts"] == [{"id": "c", "workerId": "w", "fence": 1, "startedAt": claimed}]
        assert (document["state"], document["revision"]) == ("running", 1)
    finally:
        await store.close()


async def test_what_cannot_be_gone_on_with_is_refused(mongo_server: MongoServer) -> None:
    store = await MongoTaskStore.open(fresh_database(mongo_server))
    try:
        definition = TaskDefinition(
            "task", Identity("tenant", "actor", "session", "run", "root"), "sha256:manifest", "input:one", 1
        )
        await store.create(TaskCreation(definition))
        tasks = store._collections.tasks
        # Another program raised the revision and knows nothing of the part beside it.
        await tasks.update_one({"_id": ID}, {"$inc": {"revision": 1}})
        with pytest.raises(StoreUnavailable) as changed:
            await store.get(KEY)
        assert changed.value.fault is StoreFault.CORRUPT
        await tasks.update_one({"_id": ID}, {"$inc": {"revision": -1}, "$set": {"sealwork.format": 2}})
        with pytest.raises(StoreUnavailable) as newer:
            await store.get(KEY)
        assert newer.value.fault is StoreFault.NEWER_FORMAT
        await tasks.update_one({"_id": ID}, {"$set": {"sealwork": {"format": 1}}})
        assert await refusal(store.get(KEY)) == "STORE_UNAVAILABLE"
        with pytest.raises(StoreUnavailable):
            stored_of({"_id": ID, "id": "task"})
    finally:
        await store.close()
