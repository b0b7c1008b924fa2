"""What holds for every package: the words beside each method, twins of calls on streams, shared reasons."""

import pytest
from google.protobuf import descriptor_pb2

from tests.protos.described_protocol import Protocol

PACKAGES = ("sealwork.durable.v1", "sealwork.relay.v1")

# What the code that both services share may answer.
SHARED_REASONS = {
    "FIELD_INVALID": "INVALID_ARGUMENT",
    "PAGE_TOKEN_INVALID": "INVALID_ARGUMENT",
    "PROTOCOL_VIOLATION": "INVALID_ARGUMENT",
    "UNSIGNED_REQUEST": "UNAUTHENTICATED",
    "BAD_SIGNATURE": "UNAUTHENTICATED",
    "CLOCK_SKEW": "UNAUTHENTICATED",
    "REPLAYED": "UNAUTHENTICATED",
    "UNSUPPORTED_PROTOCOL_VERSION": "FAILED_PRECONDITION",
    "BODY_TOO_LARGE_FOR_SESSION": "FAILED_PRECONDITION",
    "SESSION_SUPERSEDED": "ABORTED",
    "QUOTA_EXCEEDED": "RESOURCE_EXHAUSTED",
    "SLOW_CONSUMER": "RESOURCE_EXHAUSTED",
    "TOO_MANY_SESSIONS": "RESOURCE_EXHAUSTED",
    "SERVER_DRAINING": "UNAVAILABLE",
    "STORE_UNAVAILABLE": "UNAVAILABLE",
    "POLICY_UNAVAILABLE": "UNAVAILABLE",
    "SESSION_SILENT": "UNAVAILABLE",
    "HELLO_TIMEOUT": "DEADLINE_EXCEEDED",
    "DEADLINE_TOO_SHORT": "DEADLINE_EXCEEDED",
    "NOT_IMPLEMENTED": "UNIMPLEMENTED",
    "INTERNAL": "INTERNAL",
}


def test_every_unary_method_says_whether_it_may_be_repeated(protocol: Protocol) -> None:
    silent = [
        method.path for method in protocol.methods if not method.streams and "dempotent" not in method.comment
    ]

    assert silent == []


def test_every_stream_says_how_it_begins_how_it_ends_and_what_survives_it(protocol: Protocol) -> None:
    silent = [
        (method.path, phrase)
        for method in protocol.methods
        if method.streams
        for phrase in ("First frame:", "Ended by:", "Survives it:")
        if phrase not in method.comment
    ]

    assert silent == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_reason_beside_a_method_exists(package: str, protocol: Protocol) -> None:
    unknown = {
        (method.path, reason)
        for method in protocol.of(package)
        for reason in method.errors
        if reason not in protocol.reasons[package]
    }

    assert unknown == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_shared_reasons_have_the_same_code_everywhere(package: str, protocol: Protocol) -> None:
    codes = {
        reason: protocol.code(package, reason)
        for reason in SHARED_REASONS
        if reason in protocol.reasons[package]
    }

    assert codes == SHARED_REASONS


def test_a_signed_request_has_no_map_fields_at_any_depth(protocol: Protocol) -> None:
    maps = {
        (method.path, f"{holder}.{field.name}")
        for method in protocol.methods
        for holder, field in protocol.reachable(method.request)
        for nested in protocol.messages[holder].nested_type
        if nested.options.map_entry and field.type_name.endswith(nested.name)
    }

    assert maps == set()


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (".sealwork.relay.v1.SiteCall", ".sealwork.relay.v1.SiteReply"),
        (".sealwork.relay.v1.DaemonCall", ".sealwork.relay.v1.DaemonReply"),
        (".sealwork.durable.v1.WorkerCall", ".sealwork.durable.v1.WorkerReply"),
    ],
)
def test_a_call_on_a_session_has_a_unary_twin_with_the_same_messages(
    call: str, reply: str, protocol: Protocol
) -> None:
    requests = {name: field.type_name for name, field in protocol.fields(call).items() if name != "id"}
    answers = {
        name: field.type_name for name, field in protocol.fields(reply).items() if name not in {"id", "error"}
    }
    twins = {method.request: method.response for method in protocol.methods if not method.streams}

    assert requests
    assert {name: twins.get(request) for name, request in requests.items()} == answers


@pytest.mark.parametrize(
    "frame",
    [
        ".sealwork.relay.v1.SitePlaneServiceSession",
        ".sealwork.relay.v1.DaemonPlaneServiceSession",
        ".sealwork.durable.v1.WorkerServiceSession",
    ],
)
def test_frames_of_all_sessions_are_alike(frame: str, protocol: Protocol) -> None:
    for side in ("Request", "Response"):
        fields = protocol.fields(frame + side)
        assert {name: field.number for name, field in fields.items()} == {"seq": 1, "ack_seq": 2, "items": 3}
        assert fields["items"].label == descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        [(_, first)] = [
            pair for pair in protocol.fields(fields["items"].type_name).items() if pair[1].number == 1
        ]
        assert first.name == ("hello" if side == "Request" else "challenge")
