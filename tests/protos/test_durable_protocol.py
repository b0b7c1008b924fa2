"""The durable package: no tenant in a request, every write repeatable and fenced, codes of its reasons."""

import pytest
from google.protobuf import descriptor_pb2

from sealwork.durable.v1 import (
    action_pb2,
    action_service_pb2,
    record_service_pb2,
    task_pb2,
    worker_service_pb2,
)
from tests.protos.described_protocol import Protocol, reasons_named

PACKAGE = "sealwork.durable.v1"

METHODS = {
    "TaskService": ["CreateTask", "GetTask", "ListTasks", "CancelTask", "WaitTask", "WatchTasks"],
    "WorkerService": [
        *("Session", "ClaimNext", "ClaimTask", "ClaimForRecovery", "RenewLeases", "ReleaseTask", "YieldTask"),
        *("ReserveBudget", "CompleteTask", "FailTask", "AcknowledgeCancellation"),
    ],
    "ActionService": [
        *("PrepareAction", "BeginDispatch", "ConfirmAction", "MarkActionUnknown", "WithdrawDispatch"),
        *("ReconcileAction", "ListActions"),
    ],
    "ApprovalService": ["ListPendingApprovals", "GetApproval", "DecideApproval", "WatchApprovals"],
    "RecordService": [
        *("AppendEvent", "ListEvents", "WatchEvents", "PutArtifact", "GetArtifact", "PutCheckpoint"),
        "GetSnapshot",
    ],
    "DurableAdminService": ["GetStats", "ListUnknownActions", "PurgeTasks", "UpdateExtension", "Watch"],
}

# By what a repeat of each write is recognised, beside the lease.
REPEATED_BY = {
    "CreateTask": {"task_id", "definition"},
    "CancelTask": {"task_id"},
    "ClaimNext": {"claim_id"},
    "ClaimTask": {"claim_id"},
    "ClaimForRecovery": {"claim_id"},
    "RenewLeases": {"leases"},
    "ReleaseTask": {"lease"},
    "YieldTask": {"lease"},
    "ReserveBudget": {"lease", "reservation_id"},
    "CompleteTask": {"lease"},
    "FailTask": {"lease"},
    "AcknowledgeCancellation": {"lease"},
    "PrepareAction": {"lease", "action_id"},
    "BeginDispatch": {"lease", "dispatch_id"},
    "ConfirmAction": {"lease", "dispatch_id", "result_ref"},
    "MarkActionUnknown": {"lease", "dispatch_id"},
    "WithdrawDispatch": {"lease", "dispatch_id"},
    "ReconcileAction": {"lease", "evidence_ref", "finding"},
    "DecideApproval": {"approval_id", "prepared_hash", "request_id"},
    "AppendEvent": {"lease", "event_id"},
    "PutCheckpoint": {"lease", "checkpoint_id"},
    "PurgeTasks": {"task_ids"},
    "UpdateExtension": {"expected_revision", "lease"},
}
READS = {
    *("GetTask", "ListTasks", "WaitTask", "ListActions", "ListPendingApprovals", "GetApproval"),
    *("ListEvents", "GetSnapshot", "GetStats", "ListUnknownActions"),
}

CODES = {
    "INVALID_ARGUMENT": {
        *("FIELD_INVALID", "INVALID_IDENTIFIER", "INVALID_INTEGER", "INVALID_JSON", "RESERVED_EXTENSION"),
        *(
            "TASK_TOO_LARGE",
            "EVENT_TOO_LARGE",
            "ARTIFACT_TOO_LARGE",
            "ARTIFACT_CONTENT_MISMATCH",
            "TTL_RANGE",
        ),
        *("APPROVAL_EXPIRY", "PAGE_TOKEN_INVALID", "PROTOCOL_VIOLATION"),
    },
    "UNAUTHENTICATED": {"UNSIGNED_REQUEST", "BAD_SIGNATURE", "CLOCK_SKEW", "REPLAYED"},
    "PERMISSION_DENIED": {"PRINCIPAL_REVOKED", "ROLE_NOT_ALLOWED", "ADMISSION_REFUSED"},
    "NOT_FOUND": {
        *("TASK_NOT_FOUND", "ACTION_NOT_FOUND", "APPROVAL_NOT_FOUND", "ARTIFACT_NOT_FOUND"),
        *("ARTIFACT_EXPIRED", "SNAPSHOT_NOT_FOUND"),
    },
    "ALREADY_EXISTS": {
        *("DEFINITION_MISMATCH", "TASK_PURGED", "ACTION_MISMATCH", "ARTIFACT_IMMUTABLE"),
        "REQUEST_ID_REUSED",
    },
    # LEASE_LOST is here and not ABORTED: clients repeat what is ABORTED, and a fenced-out worker has to stop.
    "FAILED_PRECONDITION": {
        *("UNSUPPORTED_PROTOCOL_VERSION", "LEASE_LOST", "TASK_TERMINAL", "TASK_NOT_RUNNING"),
        *("CANCEL_REQUESTED", "CANCEL_NOT_REQUESTED", "RECOVERY_REQUIRED", "ILLEGAL_TRANSITION"),
        *("ACTION_SETTLED", "CONNECTOR_VERSION", "NOT_UNKNOWN", "NOT_APPROVABLE", "APPROVAL_BINDING"),
        *("APPROVAL_DECIDED", "BODY_TOO_LARGE_FOR_SESSION", "WORKER_ID_CONFLICT"),
    },
    "ABORTED": {"SESSION_SUPERSEDED", "CONTENTION", "EXTENSION_CONFLICT"},
    "OUT_OF_RANGE": {"EVENT_GAP", "RESUME_TOKEN_EXPIRED"},
    "RESOURCE_EXHAUSTED": {"BUDGET_EXHAUSTED", "QUOTA_EXCEEDED", "SLOW_CONSUMER", "TOO_MANY_SESSIONS"},
    "UNAVAILABLE": {"SERVER_DRAINING", "STORE_UNAVAILABLE", "POLICY_UNAVAILABLE", "SESSION_SILENT"},
    "DEADLINE_EXCEEDED": {"HELLO_TIMEOUT", "DEADLINE_TOO_SHORT"},
    "DATA_LOSS": {"BLOB_CORRUPT", "BLOB_COLLISION"},
    "UNIMPLEMENTED": {"NOT_IMPLEMENTED"},
    "INTERNAL": {"INTERNAL"},
}


def test_the_services_offer_these_methods(protocol: Protocol) -> None:
    offered: dict[str, list[str]] = {}
    for method in protocol.of(PACKAGE):
        offered.setdefault(method.service, []).append(method.name)

    assert offered == METHODS


def test_no_request_names_a_tenant_or_an_actor(protocol: Protocol) -> None:
    named = {
        (method.path, field.name)
        for method in protocol.of(PACKAGE)
        for _, field in protocol.reachable(method.request)
        if field.name in {"tenant_id", "actor_id", "tenant", "actor"}
    }

    assert named == set()


def test_every_unary_method_is_a_read_or_a_write_that_may_be_repeated(protocol: Protocol) -> None:
    unary = {method.name for method in protocol.of(PACKAGE) if not method.streams}

    assert unary == REPEATED_BY.keys() | READS


@pytest.mark.parametrize("name", sorted(REPEATED_BY))
def test_a_write_carries_what_a_repeat_is_recognised_by(name: str, protocol: Protocol) -> None:
    [method] = [method for method in protocol.of(PACKAGE) if method.name == name]

    assert REPEATED_BY[name] <= protocol.fields(method.request).keys()
    if "lease" in REPEATED_BY[name]:
        assert protocol.fields(method.request)["lease"].type_name == ".sealwork.durable.v1.LeaseRef"
        assert "LEASE_LOST" in method.errors


@pytest.mark.parametrize("name", sorted(name for name, fields in REPEATED_BY.items() if "lease" in fields))
def test_a_write_under_a_lease_answers_where_the_task_stands(name: str, protocol: Protocol) -> None:
    [method] = [method for method in protocol.of(PACKAGE) if method.name == name]

    assert protocol.fields(method.response)["status"].type_name == ".sealwork.durable.v1.TaskStatus"


def test_each_reason_has_the_code_that_tells_a_client_whether_to_repeat(protocol: Protocol) -> None:
    codes: dict[str, set[str]] = {}
    for reason in protocol.reasons[PACKAGE]:
        codes.setdefault(protocol.code(PACKAGE, reason), set()).add(reason)

    assert codes == CODES


def test_every_reason_is_named_beside_a_method_or_its_service(protocol: Protocol) -> None:
    named = {
        reason
        for method in protocol.of(PACKAGE)
        for reason in method.errors | reasons_named(method.service_comment)
    }
    # Told inside a reply on the session, whose comment names it.
    assert protocol.reasons[PACKAGE].keys() - named == {"BODY_TOO_LARGE_FOR_SESSION"}


def test_states_have_the_numbers_that_stored_histories_hold() -> None:
    assert task_pb2.TaskState.items() == [
        ("TASK_STATE_UNSPECIFIED", 0),
        ("TASK_STATE_QUEUED", 1),
        ("TASK_STATE_RUNNING", 2),
        ("TASK_STATE_AWAITING_APPROVAL", 3),
        ("TASK_STATE_CANCEL_REQUESTED", 4),
        ("TASK_STATE_COMPLETED", 5),
        ("TASK_STATE_FAILED", 6),
        ("TASK_STATE_CANCELED", 7),
        ("TASK_STATE_STOPPED", 8),
    ]
    assert action_pb2.ActionState.items() == [
        ("ACTION_STATE_UNSPECIFIED", 0),
        ("ACTION_STATE_PREPARED", 1),
        ("ACTION_STATE_AWAITING_APPROVAL", 2),
        ("ACTION_STATE_EXECUTING", 3),
        ("ACTION_STATE_UNKNOWN", 4),
        ("ACTION_STATE_CONFIRMED", 5),
        ("ACTION_STATE_REJECTED", 6),
        ("ACTION_STATE_CANCELED", 7),
    ]


def test_absent_input_and_null_differ_on_the_wire() -> None:
    absent = task_pb2.TaskDefinition()
    null = task_pb2.TaskDefinition(input=b"null")
    empty = task_pb2.TaskDefinition(input=b"")

    assert not absent.HasField("input")
    assert null.SerializeToString() == b"\x32\x04null"
    assert empty.SerializeToString() == b"\x32\x00"


def test_a_renewal_of_one_lease_is_small() -> None:
    frame = worker_service_pb2.WorkerServiceSessionRequest(seq=3, ack_seq=2)
    renewal = frame.items.add().renew
    renewal.renewal_id = 7
    renewal.leases.add(task_id="task-1", fence=2)

    assert frame.SerializeToString() == bytes.fromhex("08031002 1a10 220e 0807 120a 0a067461736b2d31 1802")


@pytest.mark.parametrize("outcome", ["dispatch", "already_confirmed", "suspended", "rejected"])
def test_an_outcome_of_a_newer_service_permits_no_dispatch(outcome: str) -> None:
    response = action_service_pb2.BeginDispatchResponse()
    getattr(response, outcome).SetInParent()
    unknown = action_service_pb2.BeginDispatchResponse.FromString(b"\xa2\x06\x00")

    assert response.WhichOneof("outcome") == outcome
    assert unknown.WhichOneof("outcome") is None


def test_a_chunk_without_bytes_is_told_from_no_part() -> None:
    assert record_service_pb2.PutArtifactRequest(chunk=b"").WhichOneof("part") == "chunk"
    assert record_service_pb2.PutArtifactRequest().WhichOneof("part") is None


def test_fields_of_messages_are_numbered_without_holes(protocol: Protocol) -> None:
    # A first version has nothing to reserve; a hole would be a field that was lost on the way.
    gaps = {
        name: numbers
        for name, message in protocol.messages.items()
        if name.startswith(f".{PACKAGE}.")
        and (numbers := _numbers(message)) != list(range(1, len(numbers) + 1))
    }

    assert gaps == {}


def _numbers(message: descriptor_pb2.DescriptorProto) -> list[int]:
    return sorted(field.number for field in message.field)
