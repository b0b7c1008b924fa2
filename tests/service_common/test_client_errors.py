"""What a person reads of a call that did not come through."""

import grpc
import pytest

from service_common.client_errors import CallError
from service_common.errors import ServiceError

GRPC_SAYS = "failed to connect to all addresses; last error"


def told(message: str) -> str:
    return str(CallError(ServiceError(grpc.StatusCode.UNAVAILABLE, "", message)))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            f"{GRPC_SAYS}: UNKNOWN: ipv4:127.0.0.1:443: Failed to connect to remote host: Connection refused",
            "UNAVAILABLE: cannot connect to 127.0.0.1:443: Connection refused",
        ),
        (
            f"{GRPC_SAYS}: UNAVAILABLE: ipv4:192.0.2.1:7433: Socket closed",
            "UNAVAILABLE: cannot connect to 192.0.2.1:7433: Socket closed",
        ),
        ("the server drains", "UNAVAILABLE: the server drains"),
    ],
)
def test_a_service_that_is_not_there_is_told_in_few_words(message: str, text: str) -> None:
    assert told(message) == text


def test_programs_get_the_message_as_it_came() -> None:
    message = f"{GRPC_SAYS}: UNKNOWN: ipv4:127.0.0.1:1: Socket closed"
    assert CallError(ServiceError(grpc.StatusCode.UNAVAILABLE, "", message)).message == message


def test_the_log_of_a_client_has_it_in_few_words_too() -> None:
    message = (
        f"{GRPC_SAYS}: UNKNOWN: ipv4:127.0.0.1:443: Failed to connect to remote host: Connection refused"
    )
    error = ServiceError(grpc.StatusCode.UNAVAILABLE, "", message)
    assert str(error) == "UNAVAILABLE: cannot connect to 127.0.0.1:443: Connection refused"
    named = ServiceError(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE", "try again")
    assert str(named) == "UNAVAILABLE/STORE_UNAVAILABLE: try again"
