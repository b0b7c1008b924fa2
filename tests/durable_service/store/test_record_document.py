"""Records on disk: what is written is read, and nothing else is."""

from types import MappingProxyType

import orjson
import pytest

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.definition import Budget, Driver, Identity, TaskDefinition
from durable_service.core.model import (
    Action,
    Approval,
    ArtifactReference,
    Attempt,
    ClaimReason,
    Ending,
    Extension,
    Lease,
    RejectionCause,
    Reservation,
    Settlement,
    Snapshot,
    TaskEvent,
    TaskRecord,
)
from durable_service.core.states import ActionState, ApprovalDecision, TaskState
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.record_document import (
    decode_event,
    decode_record,
    encode_definition,
    encode_event,
    encode_lease,
    encode_progress,
)

TEXT = CanonicalJson('{"é":"😀\\u0000"}')
FULL = TaskRecord(
    definition=TaskDefinition(
        "task",
        Identity("tenant", "actor", "session", "run", "root", "parent"),
        "manifest",
        "input",
        9_007_199_254_740_991,
        ("a", "a"),
        Budget(1, 2, 3),
        Driver("driver", 4),
        TEXT,
    ),
    digest="sha256:d",
    created_at_ms=1,
    updated_at_ms=2,
    state=TaskState.AWAITING_APPROVAL,
    revision=3,
    fence=4,
    lease=Lease("worker", 4, 5, "claim", ClaimReason.RECOVERY),
    settlement=Settlement("worker", 3, Ending.YIELDED, "result"),
    last_claim_id="claim",
    attempts=(Attempt("attempt", "worker", 1, 6),),
    grace_attempts=7,
    reserved_tokens=1,
    reserved_cost_micros=2,
    reservations=MappingProxyType({"r": Reservation("r", 1, 2)}),
    actions=MappingProxyType(
        {
            "z": Action("z", "c", "d", TEXT, "h", "k", ActionState.UNKNOWN, 1, 2),
            "a": Action(
                "a",
                "c",
                "d",
                TEXT,
                "h",
                "k",
                ActionState.REJECTED,
                1,
                2,
                "approval",
                3,
                "dispatch",
                "result",
                "evidence",
                "absent",
                RejectionCause.APPROVAL_DENIED,
            ),
        }
    ),
    approvals=MappingProxyType(
        {
            "approval": Approval(
                "approval", "a", "actor", "h", 1, 2, 3, ApprovalDecision.DENIED, True, 4, "note", True
            )
        }
    ),
    extensions=MappingProxyType({"slot": Extension("slot", 1, TEXT)}),
    artifacts=MappingProxyType({"out": ArtifactReference("out", "key", "digest", 1, "type", 2, 3)}),
    snapshots=MappingProxyType({"s": Snapshot("s", "snapshot:s", "digest")}),
    result_ref="result",
    failure="failure",
    cancel_reason="cancel",
    not_before_ms=8,
    start_deadline_ms=9,
    finish_deadline_ms=10,
    last_sequence=11,
)


def test_every_field_comes_back() -> None:
    read = decode_record(encode_definition(FULL), encode_progress(FULL), encode_lease(FULL.lease))
    assert read == FULL
    # Actions stay in the order in which they were prepared.
    assert list(read.actions) == ["z", "a"]
    assert isinstance(read.actions["a"].state, ActionState)
    assert isinstance(read.approvals["approval"].decision, ApprovalDecision)
    assert isinstance(read.definition.grant_refs, tuple)


def test_an_event_comes_back() -> None:
    event = TaskEvent(1, "note", 2, None, 3, TEXT, "id")
    assert decode_event(encode_event(event)) == event


def test_a_lease_is_apart_from_the_rest() -> None:
    assert b"lease" not in encode_progress(FULL)
    assert encode_lease(None) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"format": 2}, StoreFault.NEWER_FORMAT),
        ({"format": "1"}, StoreFault.CORRUPT),
        ({"unknown": 1}, StoreFault.CORRUPT),
        ({"state": "asleep"}, StoreFault.CORRUPT),
        ({"actions": {"a": {"id": "a"}}}, StoreFault.CORRUPT),
    ],
)
def test_what_cannot_be_read_is_refused(change: dict[str, object], fault: StoreFault) -> None:
    progress = orjson.dumps({**orjson.loads(encode_progress(FULL)), **change})
    with pytest.raises(StoreUnavailable) as refusal:
        decode_record(encode_definition(FULL), progress, None)
    assert refusal.value.fault is fault


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"{"])
def test_what_is_no_document(body: bytes) -> None:
    with pytest.raises(StoreUnavailable) as refusal:
        decode_record(body, encode_progress(FULL), None)
    assert refusal.value.fault is StoreFault.CORRUPT
