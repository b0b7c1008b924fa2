"""The definition of a task, its digest and the hashes that are bound to it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durable_service.core import admission
from durable_service.core.binding import (
    binding_text,
    blob_key,
    bytes_digest,
    idempotency_key,
    prepared_hash,
    task_key_digest,
)
from durable_service.core.canonical_json import CanonicalJson, canonical_json
from durable_service.core.definition import (
    Budget,
    Driver,
    TaskDefinition,
    TaskKey,
    definition_digest,
    definition_text,
    document_digest,
)
from durable_service.core.errors import Reason
from durable_service.core.record_size import checked_size, record_text

from .tasks import HELLO, IDENTITY, START_MS, definition, reason, refused

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "definition-digest.json").read_bytes())
BASE = definition(budget=Budget())
PLAIN_DIGEST = "sha256:6edd169494aee36c40a59e692155d1ad40b4db330ffe661e15cb543094cb63e0"
KEY = TaskKey("tenant", "task")
SNAPSHOT = (
    b'{"history":[{"content":"done","providerExtras":{"opaque":"fixture"},"role":"assistant"}],'
    b'"state":{"count":1}}'
)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    assert document_digest({**VECTORS["base"], **case["overrides"]}) == case["digest"]


@pytest.mark.parametrize(
    ("changes", "digest"),
    [
        ({}, PLAIN_DIGEST),
        ({"budget": Budget(3, 1_000_000, 100_000_000)}, PLAIN_DIGEST),
        (
            {"budget": Budget(max_tokens=5)},
            "sha256:5fbf0fdd2b9bb1dcbee09a61ee5bdd52bd53d12deb2b2124d86fe2421b403c2b",
        ),
        (
            {"budget": Budget(10, 10, 20)},
            "sha256:79e641c0e5101c0328bfbffc29355c159fad0d61e60558ad36d630b627e7acbe",
        ),
        (
            {"driver": Driver("fixture", 1), "input": CanonicalJson('{"value":42}')},
            "sha256:45c9e350aebe256aab965c8dbfdd6390552b59786f239aca8398092201b14366",
        ),
        (
            {"input": CanonicalJson("null")},
            "sha256:66816e52d88cff0cced395a233397998e72d6cc5d428496424099a0d955a4b04",
        ),
        (
            {"identity": replace(IDENTITY, parent_run_id="parent")},
            "sha256:04d5cb9f84c4caedcafc07f77dac43df5c153064fe2b73331e169bbcaac63381",
        ),
        (
            {"grant_refs": ("b", "a")},
            "sha256:501d49552f1a113f8723367b5aec2d66beb0acb003d91960d0cf8f68321ede6c",
        ),
        ({"grant_refs": ()}, "sha256:89b21255b6dd020d7505842944bc693b8dc539325df6c97f863f117e49bf20bd"),
        (
            {"input": canonical_json({"9": 2, "10": 1, "näme": "zoë 😀"})},
            "sha256:9b2c4bf961a183d567de53cb66d038015957a143bfc591098761152a4102ca6c",
        ),
        (
            {"input": CanonicalJson('""')},
            "sha256:320658e86edb421fa3ed3c5c1011d5bc83ba3238797725f823f530f45542a263",
        ),
    ],
)
def test_digest_of_a_typed_definition(changes: dict[str, Any], digest: str) -> None:
    assert definition_digest(replace(BASE, **changes)) == digest


def test_text() -> None:
    assert definition_text(BASE) == (
        '{"budget":{"maxAttempts":3,"maxCostMicros":100000000,"maxTokens":1000000},'
        '"grantRefs":["grant:send"],"id":"task","identity":{"actorId":"actor","rootRunId":"root",'
        '"runId":"run","sessionId":"session","tenantId":"tenant"},"inputRef":"input:one",'
        '"manifestHash":"sha256:manifest","policyRevision":1}'
    )


@pytest.mark.parametrize(
    ("changes", "why", "field"),
    [
        ({"id": ""}, Reason.INVALID_IDENTIFIER, "id"),
        ({"id": " \u00a0\ufeff"}, Reason.INVALID_IDENTIFIER, "id"),
        ({"id": "constructor"}, Reason.INVALID_IDENTIFIER, "id"),
        ({"id": "a\nb"}, Reason.INVALID_IDENTIFIER, "id"),
        ({"id": "\ud800"}, Reason.INVALID_IDENTIFIER, "id"),
        ({"id": "x" * 513}, Reason.INVALID_IDENTIFIER, "id"),
        ({"id": "😀" * 257}, Reason.INVALID_IDENTIFIER, "id"),
        ({"identity": replace(IDENTITY, run_id="")}, Reason.INVALID_IDENTIFIER, "identity.runId"),
        (
            {"identity": replace(IDENTITY, parent_run_id="")},
            Reason.INVALID_IDENTIFIER,
            "identity.parentRunId",
        ),
        ({"manifest_hash": ""}, Reason.INVALID_IDENTIFIER, "manifestHash"),
        ({"input_ref": ""}, Reason.INVALID_IDENTIFIER, "inputRef"),
        ({"policy_revision": -1}, Reason.INVALID_INTEGER, "policyRevision"),
        ({"policy_revision": 2**53}, Reason.INVALID_INTEGER, "policyRevision"),
        ({"policy_revision": True}, Reason.INVALID_INTEGER, "policyRevision"),
        ({"grant_refs": ("ok", "")}, Reason.INVALID_IDENTIFIER, "grantRefs/1"),
        ({"grant_refs": ("g",) * 1_001}, Reason.FIELD_INVALID, "grantRefs"),
        ({"budget": Budget(max_attempts=0)}, Reason.INVALID_INTEGER, "budget.maxAttempts"),
        ({"budget": Budget(max_tokens=-1)}, Reason.INVALID_INTEGER, "budget.maxTokens"),
        ({"driver": Driver("", 1)}, Reason.INVALID_IDENTIFIER, "driver.id"),
        ({"driver": Driver("d", -1)}, Reason.INVALID_INTEGER, "driver.version"),
    ],
)
def test_what_is_malformed(changes: dict[str, Any], why: Reason, field: str) -> None:
    creation = admission.TaskCreation(replace(BASE, **changes))
    refusal = refused(lambda: admission.create(None, creation, START_MS))
    assert (refusal.reason, refusal.violations[0].subject) == (why, field)


@pytest.mark.parametrize("task_id", ["toString", "a b", " x ", "😀" * 256, "x" * 512, "\u200b", "a/b"])
def test_what_is_an_identifier(task_id: str) -> None:
    creation = admission.TaskCreation(replace(BASE, id=task_id))
    assert admission.create(None, creation, START_MS).record.key.task_id == task_id


def test_the_same_definition_is_the_same_task() -> None:
    first = admission.create(None, admission.TaskCreation(BASE), START_MS)
    again = admission.create(
        first.record, admission.TaskCreation(BASE, {"slot": CanonicalJson("1")}), START_MS + 5
    )
    assert (first.answer.created, again.answer.created) == (True, False)
    assert (again.record, again.written, again.events) == (first.record, False, ())


def test_another_definition_is_refused_with_both_digests() -> None:
    first = admission.create(None, admission.TaskCreation(BASE), START_MS)
    other = admission.TaskCreation(replace(BASE, budget=Budget(10, 10, 20)))
    refusal = refused(lambda: admission.create(first.record, other, START_MS))
    assert refusal.reason is Reason.DEFINITION_MISMATCH
    assert refusal.details == {
        "existing_digest": PLAIN_DIGEST,
        "requested_digest": "sha256:79e641c0e5101c0328bfbffc29355c159fad0d61e60558ad36d630b627e7acbe",
    }


@pytest.mark.parametrize("name", ["agentium.records.v1", "sealwork.x"])
def test_reserved_slots(name: str) -> None:
    creation = admission.TaskCreation(BASE, {name: CanonicalJson("{}")})
    assert reason(lambda: admission.create(None, creation, START_MS)) is Reason.RESERVED_EXTENSION


@pytest.mark.parametrize("deadline", ["start_deadline_ms", "finish_deadline_ms"])
def test_a_deadline_is_in_the_future(deadline: str) -> None:
    timing: dict[str, Any] = {deadline: START_MS}
    creation = admission.TaskCreation(BASE, **timing)
    assert reason(lambda: admission.create(None, creation, START_MS)) is Reason.FIELD_INVALID


def test_binding() -> None:
    assert binding_text(BASE, "fixture@1", "inbox", HELLO) == (
        '{"args":{"message":"hello"},"connectorVersion":"fixture@1","destination":"inbox",'
        '"grantRefs":["grant:send"],"identity":{"actorId":"actor","rootRunId":"root","runId":"run",'
        '"sessionId":"session","tenantId":"tenant"},"policyRevision":1}'
    )


@pytest.mark.parametrize(
    ("task", "args", "expected"),
    [
        (BASE, HELLO, "sha256:be2843bde9ba5f2bfee72d7479dba9f998e5ab28ed352c5423e6c49e49bb98c7"),
        (BASE, "{}", "sha256:626673a7774c68c12ab88ac64a1a8ddab301fe232cdab82c9666cda677d18f39"),
        (BASE, "null", "sha256:6bcb3b0a4d64d4149e4358d708aa9843ad8b3edc625bc44a11ec6433196ac891"),
        (
            replace(BASE, identity=replace(IDENTITY, parent_run_id="parent")),
            HELLO,
            "sha256:f51e1182a06c0c9424a96c987dead854d457dce26603c6cffb30640cdba866ea",
        ),
    ],
)
def test_prepared_hash(task: TaskDefinition, args: str, expected: str) -> None:
    assert prepared_hash(task, "fixture@1", "inbox", CanonicalJson(args)) == expected


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (
            "sha256:be2843bde9ba5f2bfee72d7479dba9f998e5ab28ed352c5423e6c49e49bb98c7",
            "sha256:2892a06b2514dec533ec321365e2a1f10a59e00a6962a7dcef66277f971c19fc",
        ),
        (
            "sha256:626673a7774c68c12ab88ac64a1a8ddab301fe232cdab82c9666cda677d18f39",
            "sha256:362a7cfb935303573fc33e75cfabda6a721ed97619dd3d11478cee0f45f87f4a",
        ),
    ],
)
def test_idempotency_key(bound: str, expected: str) -> None:
    assert idempotency_key(KEY, "send", bound) == expected


def test_task_key_digest() -> None:
    expected = "sha256:efd1cc6da8f133269764c5b84992548b744982927d7a415d7915c1412af337e4"
    assert task_key_digest(KEY) == expected


@pytest.mark.parametrize(
    ("artifact_id", "data", "digest", "key"),
    [
        (
            "output",
            b"hello",
            "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            "183556fc06263bf660738f3c12e7682e1c7123a43458d13225dd3ff0cb65adaf",
        ),
        (
            "output",
            b"",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "9c5aaa6747c8eae493ddf5fcdac0187e3d50f96560e16de0960c4356ad212664",
        ),
        (
            "snapshot:one",
            SNAPSHOT,
            "sha256:152224827267b818dd9f5ffc7caae23d78464c0c2197ecd425ebb0225c254717",
            "9b89d36ad94b4edc4bb5ad0fc8dd2d9a56e583165ef50f742f5fc53361e2a92f",
        ),
    ],
)
def test_blob_key(artifact_id: str, data: bytes, digest: str, key: str) -> None:
    assert bytes_digest(data) == digest
    assert blob_key(KEY, artifact_id, digest) == key


def test_size_of_a_fresh_record() -> None:
    record = admission.create(None, admission.TaskCreation(BASE), 1_000).record
    assert record_text(record) == (
        '{"actions":{},"approvals":{},"attempts":[],"budget":{"maxAttempts":3,"maxCostMicros":100000000,'
        '"maxTokens":1000000},"createdAt":1000,"extensions":{},"fence":0,"grantRefs":["grant:send"],'
        '"id":"task","identity":{"actorId":"actor","rootRunId":"root","runId":"run","sessionId":"session",'
        '"tenantId":"tenant"},"inputRef":"input:one","manifestHash":"sha256:manifest","policyRevision":1,'
        '"reservedCostMicros":0,"reservedTokens":0,"revision":0,"schemaVersion":1,"state":"queued",'
        '"updatedAt":1000}'
    )
    assert checked_size(record, 486) is record
    assert reason(lambda: checked_size(record, 485)) is Reason.TASK_TOO_LARGE


def test_size_is_asked_when_a_task_is_created() -> None:
    creation = admission.TaskCreation(BASE)
    assert admission.create(None, creation, 1_000, limit_bytes=486).answer.created
    assert reason(lambda: admission.create(None, creation, 1_000, limit_bytes=485)) is Reason.TASK_TOO_LARGE
