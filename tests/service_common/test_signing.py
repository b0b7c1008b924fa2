import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import nacl.exceptions
import nacl.signing
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service_common.signing import Signer, request_metadata, sign_request, sign_session
from service_common.verification import request_bytes, session_bytes, verify_signature

pytestmark = pytest.mark.interop

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors/relay.json").read_bytes())

CLAIM = "/sealwork.relay.v1.DaemonPlaneService/ClaimJobs"
SESSION = "/sealwork.relay.v1.SitePlaneService/Session"
BODY = bytes.fromhex("0a0872756e6e65725f31")
NONCE = bytes(range(16))
NONCE_TEXT = "AAECAwQFBgcICQoLDA0ODw"
ISSUED_AT_MS = 1_767_225_600_000
DEVICE_SEED = b"\x03" * 32
SITE_SEED = b"\x01" * 32
HELLO = b"hello-bytes"
CHALLENGE = b"\xff" * 32

REQUEST_LINES = (
    b"sealwork/v1/request\n"
    b"/sealwork.relay.v1.DaemonPlaneService/ClaimJobs\n"
    b"runner_1\n"
    b"1767225600000\n"
    b"AAECAwQFBgcICQoLDA0ODw\n"
    b"f71f83dacbaf009fc635df9cab0c3c08297b22c724785e4e3989c3baa8d033fc"
)
REQUEST_SIGNATURE = "IySEd4dNa3ek-6OkYgJRDvfwqzsHsU5e_XMjfPLs6Dw9yRy8171hM3XSY2MexT3MA4xQsNMEWxNtMbjsWUjQDQ"
EMPTY_SIGNATURE = "1vX3fmWWV0MaIBT9tcPp_CrWwClaKcia6_b_wd0AT6i2aFI6XHf2_voyrsIalFWIxAyubBYruaGAryxZ9Z8-Dw"
SESSION_LINES = (
    "sealwork/v1/session\n"
    "/sealwork.relay.v1.SitePlaneService/Session\n"
    "site_démo\n"
    "__________________________________________8\n"
    "dd1fb82ed53df87c98fa9397b0ceba6b166374eab810ab351e5d955652613f37"
).encode()
SESSION_SIGNATURE = "i9B4QFIbJbBLAB0t5rWUMMviuso4NaeOXLQEXzPCgldYsdwd_n6bXUZn3ftCqTvr1mo7gdSYIqab_9AaRE4SAw"


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_request_bytes() -> None:
    digest = "f71f83dacbaf009fc635df9cab0c3c08297b22c724785e4e3989c3baa8d033fc"
    assert request_bytes(CLAIM, "runner_1", ISSUED_AT_MS, NONCE_TEXT, digest) == REQUEST_LINES


def test_session_bytes() -> None:
    digest = "dd1fb82ed53df87c98fa9397b0ceba6b166374eab810ab351e5d955652613f37"
    assert session_bytes(SESSION, "site_démo", CHALLENGE, digest) == SESSION_LINES


@pytest.mark.parametrize(("body", "expected"), [(BODY, REQUEST_SIGNATURE), (b"", EMPTY_SIGNATURE)])
def test_request_signature(body: bytes, expected: str) -> None:
    assert sign_request(Signer(DEVICE_SEED), CLAIM, "runner_1", ISSUED_AT_MS, NONCE_TEXT, body) == expected


def test_session_signature() -> None:
    signature = sign_session(Signer(SITE_SEED), SESSION, "site_démo", CHALLENGE, HELLO)
    assert signature == raw(SESSION_SIGNATURE)


def test_signatures_verify_with_nothing_of_ours() -> None:
    device = nacl.signing.SigningKey(DEVICE_SEED).verify_key
    lines = REQUEST_LINES.rsplit(b"\n", 1)[0] + b"\n" + hashlib.sha256(BODY).hexdigest().encode()
    device.verify(lines, raw(REQUEST_SIGNATURE))
    site = nacl.signing.SigningKey(SITE_SEED).verify_key
    site.verify(SESSION_LINES, raw(SESSION_SIGNATURE))
    with pytest.raises(nacl.exceptions.BadSignatureError):
        site.verify(SESSION_LINES + b"\n", raw(SESSION_SIGNATURE))


def test_request_metadata() -> None:
    drawn: list[int] = []

    def random_bytes(count: int) -> bytes:
        drawn.append(count)
        return NONCE

    metadata = request_metadata(Signer(DEVICE_SEED), "runner_1", CLAIM, BODY, ISSUED_AT_MS, random_bytes)
    assert metadata == (
        ("sealwork-protocol", "1"),
        ("sealwork-caller", "runner_1"),
        ("sealwork-issued-at", "1767225600000"),
        ("sealwork-nonce", "AAECAwQFBgcICQoLDA0ODw"),
        ("sealwork-signature", REQUEST_SIGNATURE),
    )
    assert drawn == [16]


def test_every_request_has_its_own_nonce() -> None:
    signer = Signer(DEVICE_SEED)
    nonces = {request_metadata(signer, "runner_1", CLAIM, BODY, ISSUED_AT_MS)[3] for _ in range(50)}
    assert len(nonces) == 50


@pytest.mark.parametrize("caller", ["", "siteé", "a\nb", "a\x00", " a", "a ", "a\x7f"])
def test_a_caller_that_metadata_cannot_carry_is_refused(caller: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        request_metadata(Signer(DEVICE_SEED), caller, CLAIM, BODY, ISSUED_AT_MS)


def test_a_line_break_in_a_signed_field_is_refused() -> None:
    signer = Signer(DEVICE_SEED)
    for method, caller, nonce in [("/a\n", "c", "n"), ("/a", "c\nd", "n"), ("/a", "c", "n\n")]:
        with pytest.raises(ValueError, match="line break"):
            sign_request(signer, method, caller, ISSUED_AT_MS, nonce, BODY)
    with pytest.raises(ValueError, match="line break"):
        sign_session(signer, SESSION, "c\nd", CHALLENGE, HELLO)


@pytest.mark.parametrize("vector", VECTORS["request_signatures"], ids=lambda vector: vector["body"])
def test_a_device_key_signs_as_the_vectors_say(vector: dict[str, Any]) -> None:
    # The last 32 bytes of the stored private key are the seed.
    seed = base64.b64decode(VECTORS["keys"]["device"]["identityPrivate"])[-32:]
    signer = Signer(seed)
    assert signer.public_key == raw(VECTORS["public"]["device"]["identity"])
    assert signer.sign(vector["canonical"].encode()) == raw(vector["signature"])


@pytest.mark.parametrize(
    ("seed", "endpoint", "caller", "digest", "signature"),
    [
        (
            b"\x03" * 32,
            "claim",
            "runner_1",
            "464aa5894b8a503f357631f95757366b96e960ba59976fc8857b79129b236b8c",
            "mpMHcAOv7hy4Xr73ogGgKML8Itzaxl6ZuprXLnjHpCI8cMxXyiGeRmjacb6H6olUhvLnvH81bAKJO0lZVnH0DA",
        ),
        (
            b"\x01" * 32,
            "site/pending",
            "site_demo",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "FR4XG67aGRMTxi7b7U3xpbfx1C4gORCfJc7F4JaW_zmkrBgWyV8z93K_0JWmBQiSfVRxzR5uiDyJ47c5kY4fAQ",
        ),
        (
            b"\x01" * 32,
            "site/enqueue",
            "site_demo",
            "6362f08c35e2355448e6e59bb0d76e03c70c696ec870e83b403eb0a00490a687",
            "emVqiSFbGdcLz-8JsszCMjPCNY3DX69tBvn6dCdRGs0zSRgIAu8sfJ1fFi1rMxol9AacmMqPh2uyP0DoUVpGBA",
        ),
    ],
)
def test_fixed_seeds_sign_as_they_always_did(
    seed: bytes, endpoint: str, caller: str, digest: str, signature: str
) -> None:
    message = f"byollm/v1/request\n{endpoint}\n{caller}\n1767225600000\n{digest}".encode()
    assert Signer(seed).sign(message) == raw(signature)
    assert verify_signature(Signer(seed).public_key, message, raw(signature))


def test_a_signature_of_one_purpose_does_not_verify_for_the_other() -> None:
    signer = Signer(DEVICE_SEED)
    digest = hashlib.sha256(HELLO).hexdigest()
    signature = sign_session(signer, SESSION, "runner_1", NONCE, HELLO)
    assert verify_signature(signer.public_key, session_bytes(SESSION, "runner_1", NONCE, digest), signature)
    as_request = request_bytes(SESSION, "runner_1", ISSUED_AT_MS, NONCE_TEXT, digest)
    assert not verify_signature(signer.public_key, as_request, signature)


@pytest.mark.parametrize("position", [0, 31, 32, 63])
def test_a_changed_signature_does_not_verify(position: int) -> None:
    signature = bytearray(raw(REQUEST_SIGNATURE))
    signature[position] ^= 1
    assert not verify_signature(Signer(DEVICE_SEED).public_key, REQUEST_LINES, bytes(signature))


@given(st.binary(max_size=70), st.binary(max_size=100), st.binary(max_size=70))
def test_garbage_never_verifies_and_never_raises(key: bytes, message: bytes, signature: bytes) -> None:
    assert verify_signature(key, message, signature) is False


def test_wrong_lengths_do_not_verify() -> None:
    key, signature = Signer(DEVICE_SEED).public_key, raw(REQUEST_SIGNATURE)
    assert verify_signature(key, REQUEST_LINES, signature)
    for wrong_key in (key[:-1], key + b"\x00", b""):
        assert not verify_signature(wrong_key, REQUEST_LINES, signature)
    # Bytes moved between the signature and the message would join to the same signed text.
    assert not verify_signature(key, REQUEST_LINES[1:], signature + REQUEST_LINES[:1])
    assert not verify_signature(key, signature[-1:] + REQUEST_LINES, signature[:-1])


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_seed_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Signer(b"\x01" * length)


def test_a_signer_shows_its_public_key_alone() -> None:
    assert repr(Signer(SITE_SEED)) == "Signer(public_key=iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w)"
