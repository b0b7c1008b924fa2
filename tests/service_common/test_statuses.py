from typing import Any

import grpc
from google.rpc import status_pb2

from service_common.errors import ServiceError
from service_common.statuses import error_from_call, error_from_status
from tests.service_common.loopback import serving, unary


class BareFailure:
    """A failed call whose trailers a proxy has dropped, or mangled."""

    def __init__(self, trailers: Any) -> None:
        self._trailers = trailers

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str | None:
        return "upstream reset"

    def trailing_metadata(self) -> Any:
        return self._trailers


async def test_a_client_reads_the_whole_error_from_a_failed_call() -> None:
    async def refuse(request: object, context: object) -> object:
        raise ServiceError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "QUOTA_EXCEEDED",
            "too many jobs wait",
            metadata={"limit": "100000"},
            retry_after_ms=2_000,
        )

    async with serving({"Refuse": unary(refuse)}) as loopback:
        try:
            await loopback.call("Refuse")
        except grpc.aio.AioRpcError as failure:
            error = error_from_call(failure)
        else:
            raise AssertionError("the call was answered")
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.reason == "QUOTA_EXCEEDED"
    assert error.message == "too many jobs wait"
    assert error.metadata == {"limit": "100000"}
    assert error.retry_after_ms == 2_000


def test_a_bare_status_has_no_reason() -> None:
    for trailers in (None, (), (("x-proxy", "yes"),), (("grpc-status-details-bin", b"\xff\xff"),)):
        error = error_from_call(BareFailure(trailers))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert error.reason == ""
        assert error.message == "upstream reset"
        assert error.retry_after_ms is None


def test_a_code_that_grpc_does_not_know_is_unknown() -> None:
    assert error_from_status(status_pb2.Status(code=99)).code is grpc.StatusCode.UNKNOWN
