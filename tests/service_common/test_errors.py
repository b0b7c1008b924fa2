import grpc
from google.rpc import error_details_pb2

from service_common.errors import FieldViolation, ServiceError, invalid_argument
from service_common.statuses import error_from_status


def test_a_status_has_exactly_one_error_info() -> None:
    error = ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        "STALE_LEASE",
        "the lease has ended",
        metadata={"current_fence": "7"},
    )
    status = error.to_status("relay.sealwork.dev")
    assert status.code == 9
    assert status.message == "the lease has ended"
    (detail,) = status.details
    assert detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    assert info.reason == "STALE_LEASE"
    assert info.domain == "relay.sealwork.dev"
    assert dict(info.metadata) == {"current_fence": "7"}


def test_a_delay_becomes_retry_info() -> None:
    error = ServiceError(grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING", "leaving", retry_after_ms=1_500)
    status = error.to_status("relay.sealwork.dev")
    assert [detail.type_url.rpartition("/")[2] for detail in status.details] == [
        "google.rpc.ErrorInfo",
        "google.rpc.RetryInfo",
    ]
    retry = error_details_pb2.RetryInfo()
    assert status.details[1].Unpack(retry)
    assert retry.retry_delay.seconds == 1
    assert retry.retry_delay.nanos == 500_000_000


def test_a_delay_of_zero_is_still_a_delay() -> None:
    error = ServiceError(grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_CONSUMER", "slow", retry_after_ms=0)
    assert len(error.to_status("relay.sealwork.dev").details) == 2


def test_invalid_argument_names_every_violation() -> None:
    error = invalid_argument(
        [FieldViolation("stub.id", "is empty"), FieldViolation("stub.kind", "is over 128 characters")]
    )
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == "FIELD_INVALID"
    assert error.message == "stub.id: is empty (and 1 more)"
    bad_request = error_details_pb2.BadRequest()
    assert error.to_status("relay.sealwork.dev").details[1].Unpack(bad_request)
    assert [(each.field, each.description) for each in bad_request.field_violations] == [
        ("stub.id", "is empty"),
        ("stub.kind", "is over 128 characters"),
    ]


def test_invalid_argument_takes_a_closer_reason() -> None:
    error = invalid_argument([FieldViolation("page_token", "is not ours")], "PAGE_TOKEN_INVALID")
    assert error.reason == "PAGE_TOKEN_INVALID"
    assert error.message == "page_token: is not ours"


def test_many_violations_are_cut_to_what_fits_into_trailers() -> None:
    violations = [FieldViolation(f"jobs[{number}].id", "x" * 100) for number in range(500)]
    status = invalid_argument(violations).to_status("relay.sealwork.dev")
    assert status.ByteSize() < 4_096
    bad_request = error_details_pb2.BadRequest()
    assert status.details[1].Unpack(bad_request)
    assert bad_request.field_violations[0].field == "jobs[0].id"
    assert 20 < len(bad_request.field_violations) < 30


def test_a_long_message_is_cut() -> None:
    error = ServiceError(grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", "y" * 10_000)
    assert error.to_status("relay.sealwork.dev").message == "y" * 512


def test_the_text_of_an_error_names_code_and_reason() -> None:
    error = ServiceError(grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", "no such job")
    assert str(error) == "NOT_FOUND/JOB_NOT_FOUND: no such job"


def test_an_error_survives_the_way_there_and_back() -> None:
    sent = ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "FIELD_INVALID",
        "wrong",
        metadata={"limit": "5"},
        retry_after_ms=250,
        violations=[FieldViolation("a.b", "is wrong")],
    )
    received = error_from_status(sent.to_status("durable.sealwork.dev"))
    assert received.code is grpc.StatusCode.INVALID_ARGUMENT
    assert received.reason == "FIELD_INVALID"
    assert received.message == "wrong"
    assert received.metadata == {"limit": "5"}
    assert received.retry_after_ms == 250
    assert received.violations == (FieldViolation("a.b", "is wrong"),)
