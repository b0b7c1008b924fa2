import grpc
import pytest

from service_common.errors import ServiceError
from service_common.request_headers import SignedHeaders, require_protocol, signed_headers

CALLER = ("sealwork-caller", "device-1")
ISSUED_AT = ("sealwork-issued-at", "1700000000000")
NONCE = ("sealwork-nonce", "AAECAwQFBgcICQoLDA0ODw")
SIGNATURE = ("sealwork-signature", "A" * 86)
VERSION = ("sealwork-protocol", "1")
COMPLETE = (VERSION, CALLER, ISSUED_AT, NONCE, SIGNATURE)


def refusal(metadata: tuple[tuple[str, str | bytes], ...]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        signed_headers(metadata)
    return caught.value


def replaced(key: str, value: str | bytes) -> tuple[tuple[str, str | bytes], ...]:
    return tuple((name, value if name == key else old) for name, old in COMPLETE)


def test_complete_headers_are_read() -> None:
    metadata = (("user-agent", "x"), *COMPLETE, ("sealwork-later-addition", "y"))
    assert signed_headers(metadata) == SignedHeaders(
        caller="device-1",
        issued_at_ms=1_700_000_000_000,
        nonce="AAECAwQFBgcICQoLDA0ODw",
        signature=bytes(64),
    )


@pytest.mark.parametrize("version", ["", "0", "2", "1 ", "01", "1.0", "v1"])
def test_another_protocol_version_is_refused_with_what_to_do(version: str) -> None:
    for check in (signed_headers, require_protocol):
        with pytest.raises(ServiceError) as caught:
            check(replaced("sealwork-protocol", version))
        error = caught.value
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION
        assert error.reason == "UNSUPPORTED_PROTOCOL_VERSION"
        assert error.metadata == {"supported": "1"}
        assert "supports version 1" in error.message
        assert "upgrade" in error.message


def test_a_missing_protocol_version_is_named() -> None:
    error = refusal(COMPLETE[1:])
    assert error.reason == "UNSUPPORTED_PROTOCOL_VERSION"
    assert "sealwork-protocol is missing" in error.message


def test_the_version_is_judged_before_anything_else() -> None:
    assert refusal(()).reason == "UNSUPPORTED_PROTOCOL_VERSION"
    require_protocol((VERSION,))


@pytest.mark.parametrize("missing", ["caller", "issued-at", "nonce", "signature"])
def test_a_missing_header_is_named(missing: str) -> None:
    key = f"sealwork-{missing}"
    error = refusal(tuple(entry for entry in COMPLETE if entry[0] != key))
    assert error.code is grpc.StatusCode.UNAUTHENTICATED
    assert error.reason == "UNSIGNED_REQUEST"
    assert error.metadata == {"header": key}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sealwork-caller", ""),
        ("sealwork-caller", "x" * 129),
        ("sealwork-caller", " device-1"),
        ("sealwork-caller", "device-1 "),
        ("sealwork-caller", "device\n1"),
        ("sealwork-caller", "dévice"),
        ("sealwork-caller", b"device-1"),
        ("sealwork-issued-at", "-1"),
        ("sealwork-issued-at", "+1700000000000"),
        ("sealwork-issued-at", "01700000000000"),
        ("sealwork-issued-at", "1.7e12"),
        ("sealwork-issued-at", "١٧"),
        ("sealwork-issued-at", "1" * 17),
        ("sealwork-nonce", "AAECAwQFBgcICQoLDA0ODw=="),
        ("sealwork-nonce", "AAECAwQFBgcICQoLDA0ODx"),
        ("sealwork-nonce", "AAECAwQFBgcICQoLDA0OD"),
        ("sealwork-nonce", "AAECAwQFBgcICQoLDA0ODwAA"),
        ("sealwork-nonce", "AAECAwQFBgcICQoLDA0O+w"),
        ("sealwork-nonce", "AAECAwQFBgcICQoLDA0ODw\n"),
        ("sealwork-signature", "A" * 85),
        ("sealwork-signature", "A" * 87),
        ("sealwork-signature", "A" * 85 + "B"),
        ("sealwork-signature", "A" * 84 + "=="),
    ],
)
def test_a_malformed_header_is_refused(key: str, value: str | bytes) -> None:
    error = refusal(replaced(key, value))
    assert error.reason == "UNSIGNED_REQUEST"
    assert error.metadata == {"header": key}


def test_the_longest_caller_is_accepted() -> None:
    assert signed_headers(replaced("sealwork-caller", "x" * 128)).caller == "x" * 128


def test_a_repeated_header_is_refused_even_when_both_agree() -> None:
    assert refusal((*COMPLETE, CALLER)).metadata == {"header": "sealwork-caller"}
    # A third one does not make the value valid again.
    assert refusal((*COMPLETE, NONCE, NONCE)).metadata == {"header": "sealwork-nonce"}
