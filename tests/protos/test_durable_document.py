"""docs/durable-protocol.md speaks of methods, reasons and values that exist, and its example is right."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from sealwork.durable.v1 import action_service_pb2, claim_pb2, lease_pb2, task_pb2
from tests.protos.described_protocol import Protocol

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "durable-protocol.md").read_text(encoding="utf-8")
ENUMS = (
    task_pb2.TaskState,
    task_pb2.TaskCondition,
    lease_pb2.LeaseState,
    claim_pb2.ClaimReason,
    action_service_pb2.Finding,
)
# Of the shared handshake.
FRAMES = {"Challenge", "SignedHello", "Welcome", "WorkerHello"}


def test_every_method_in_the_document_exists_and_every_write_is_there(protocol: Protocol) -> None:
    shown = set(re.findall(r"`(?:[A-Za-z]+\.)?([A-Z][a-z]+[A-Za-z]*)", DOCUMENT)) - FRAMES
    methods = {method.name for method in protocol.of("sealwork.durable.v1")}

    assert shown - methods == set()
    assert {"CreateTask", "ClaimNext", "BeginDispatch", "DecideApproval", "PutArtifact"} <= shown


def test_every_reason_and_state_in_the_document_exists(protocol: Protocol) -> None:
    shown = set(re.findall(r"`([A-Z]{4,}(?:_[A-Z]+)*)`", DOCUMENT))
    states = {name for enum in ENUMS for name in enum.keys()}  # noqa: SIM118 - not a mapping
    known = protocol.reasons["sealwork.durable.v1"].keys()

    assert {
        word for word in shown - known if not any(state.endswith(f"_{word}") for state in states)
    } == set()


def test_the_hashes_of_the_example_are_those_of_its_values() -> None:
    identity = {
        "actorId": "actor",
        "rootRunId": "root",
        "runId": "run",
        "sessionId": "session",
        "tenantId": "tenant",
    }
    binding = {
        "args": {"message": "hello"},
        "connectorVersion": "fixture@1",
        "destination": "inbox",
        "grantRefs": ["grant:send"],
        "identity": identity,
        "policyRevision": 1,
    }
    prepared = _digest(binding)

    assert f"| `prepared_hash` | `{prepared}` |" in DOCUMENT
    assert f"| `idempotency_key` | `{_digest(['tenant', 'task', 'send', prepared])}` |" in DOCUMENT


def _digest(value: Any) -> str:
    # The keys of the example are plain words, so sorting them by code point is the canonical order.
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
