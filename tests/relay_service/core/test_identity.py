import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from relay_service.core.identity import (
    PublicIdentity,
    binding_bytes,
    decode_base64url,
    encode_base64url,
    is_key_id,
    key_id,
    verify_binding,
)

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[3]
VECTORS: dict[str, Any] = json.loads((ROOT / "tests/vectors/relay.json").read_bytes())

SITE = {
    "identity": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w",
    "encryption": "zo060cy2M-x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk",
    "encryptionSig": "W-usdiwbkrP4VxQ6ATdhuUy2n5gztwxAptVa-GQcfUv8GdfzF5Sl8Q6bX7cgtOUS7HUxKlm6VKHbSyaolmQ5Ag",
}
DEVICE = {
    "identity": "7UkoxijRwsbq6QM4kFmVYSlZJzpcY_k2NsFGFKyHN9E",
    "encryption": "rAGyIJ6GNU-4UyN7XeD0-rE8f8v0M6YcAZNpYX_s8Qs",
    "encryptionSig": "mhFKAPJ6RGjscyA487JIoTvrwB04nHLViyezwkZ8uhf92l37Ds5caSy6tP7CCE56MDD5Mglkwed1cbgiy3ilDg",
}


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ("iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w", "BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK"),
        ("7UkoxijRwsbq6QM4kFmVYSlZJzpcY_k2NsFGFKyHN9E", "BYOLLM-PRQ8-CZX2-YCXF-WRPN-TTRP-8BGP"),
        ("bnoc3Smwt4_ROvTFWY_v9O8qlxZuPKby5Pv8zYBQW_E", "BYOLLM-EPCQ-EV1G-GQHZ-KPGD-2C3H-XC5M"),
        ("6kpsY-KcUgq-9VB7Ey7F-ZVHdq6-vnuSQh7qaRRG0iw", "BYOLLM-ZT0J-R4QK-ND6E-DB2X-PTDC-6MQS"),
    ],
)
def test_key_id_of_fixed_seeds(identity: str, expected: str) -> None:
    assert key_id(decode_base64url(identity)) == expected


@pytest.mark.parametrize("name", ["site", "site2", "device", "other"])
def test_key_id_of_vectors(name: str) -> None:
    assert PublicIdentity.from_json(VECTORS["public"][name]).key_id == VECTORS["key_ids"][name]


@pytest.mark.parametrize("check", VECTORS["public_identity_checks"], ids=lambda check: check["name"])
def test_binding_vectors(check: dict[str, Any]) -> None:
    assert verify_binding(PublicIdentity.from_json(check["identity"])) is check["valid"]


@pytest.mark.parametrize("value", [SITE, DEVICE])
def test_binding_of_fixed_seeds_holds_and_survives_json(value: dict[str, str]) -> None:
    identity = PublicIdentity.from_json(value)
    assert verify_binding(identity)
    assert identity.to_json() == value


def test_binding_bytes_are_the_text_of_the_key_behind_its_prefix() -> None:
    encryption = PublicIdentity.from_json(SITE).encryption
    expected = b"byollm/v1/encryption-key:zo060cy2M-x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk"
    assert binding_bytes(encryption) == expected


def test_binding_to_the_key_of_another_party_is_refused() -> None:
    assert not verify_binding(PublicIdentity.from_json({**SITE, "encryption": DEVICE["encryption"]}))
    assert not verify_binding(PublicIdentity.from_json({**SITE, "identity": DEVICE["identity"]}))


@given(st.binary(max_size=70), st.binary(max_size=70), st.binary(max_size=70))
def test_garbage_never_binds_and_never_raises(identity: bytes, encryption: bytes, signature: bytes) -> None:
    assert verify_binding(PublicIdentity(identity, encryption, signature)) is False


@pytest.mark.parametrize("field", ["identity", "encryption", "encryption_signature"])
@pytest.mark.parametrize("length", [-1, 1])
def test_a_wrong_length_does_not_bind(field: str, length: int) -> None:
    good = PublicIdentity.from_json(SITE)
    values = {name: getattr(good, name) for name in ("identity", "encryption", "encryption_signature")}
    values[field] = values[field][:-1] if length < 0 else values[field] + b"\x00"
    assert verify_binding(PublicIdentity(**values)) is False


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [],
        {},
        {"identity": SITE["identity"], "encryption": SITE["encryption"]},
        {**SITE, "note": "x"},
        {**SITE, "identity": 5},
        {**SITE, "identity": None},
        {**SITE, "identity": SITE["identity"] + "="},
        {**SITE, "encryption": "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk"},
    ],
)
def test_json_of_another_form_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"public identity|must be text|base64url"):
        PublicIdentity.from_json(value)


@pytest.mark.parametrize(
    ("text", "data"),
    [("", b""), ("AA", b"\x00"), ("_w", b"\xff"), ("-_-_", b"\xfb\xff\xbf"), ("aGk", b"hi")],
)
def test_base64url(text: str, data: bytes) -> None:
    assert encode_base64url(data) == text
    assert decode_base64url(text) == data


@pytest.mark.parametrize(
    "text",
    [
        "A",  # no bytes have this length
        "AAAAA",
        "AA==",  # padded
        "AB",  # the four unused bits are not zero
        "_x",
        "+/+/",  # the other alphabet
        "aGk\n",
        " aGk",
        "a Gk",
        "aG.k",
        "aGké",
        "aG\x00k",
    ],
)
def test_base64url_of_another_spelling_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_base64url(text)


@given(st.binary(max_size=300))
def test_base64url_round_trip(data: bytes) -> None:
    assert decode_base64url(encode_base64url(data)) == data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK", True),
        ("BYOLLM-0000-0000-0000-0000-0000-0000", True),
        ("BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA", False),
        ("BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK-NFMK", False),
        ("byollm-6htg-z65x-b7yf-s53d-mhda-nfmk", False),
        ("BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMU", False),  # U is not in the alphabet
        ("BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK\n", False),
        ("", False),
    ],
)
def test_form_of_a_key_id(text: str, expected: bool) -> None:
    assert is_key_id(text) is expected


def test_the_server_half_imports_no_private_key_code() -> None:
    program = (
        "import sys, relay_service.core.identity, service_common.verification;"
        "print([m for m in ('nacl.signing', 'nacl.public', 'service_common.signing', 'relay_service.client')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("length", [0, 31, 33])
def test_an_encryption_key_of_another_length_does_not_bind_though_it_is_signed(length: int) -> None:
    public, secret = crypto_sign_seed_keypair(b"\x01" * 32)
    encryption = b"\x05" * length
    signature = crypto_sign(binding_bytes(encryption), secret)[:64]
    assert verify_binding(PublicIdentity(public, encryption, signature)) is False


def test_a_signature_that_carries_a_piece_of_what_it_signs_does_not_bind() -> None:
    public, secret = crypto_sign_seed_keypair(b"\x01" * 32)
    encryption = b"\x05" * 32
    signature = crypto_sign(b"more:" + binding_bytes(encryption), secret)[:64]
    assert verify_binding(PublicIdentity(public, encryption, signature + b"more:")) is False
