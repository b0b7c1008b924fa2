"""What can be sealed, and that nothing but the sealed bytes opens."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_box_seal_open

from relay_service.client.envelope import Envelope, Refusal, SealError, seal, seal_with_ephemeral
from relay_service.core.identity import PublicIdentity, decode_base64url
from tests.relay_service.client.fixed_envelopes import (
    DEADLINE_MS,
    DEVICE,
    FIXED,
    SITE,
    STRANGER,
    V4_BODY,
    boxed,
    opened,
    refusal,
    sealed,
    signed,
)


@pytest.mark.parametrize(
    ("plaintext", "spelled"),
    [
        ("naïve café 🔒 日本語", "naïve café 🔒 日本語"),
        ("\u2028\u2029", "\u2028\u2029"),
        ('"\\/', '\\"\\\\/'),
        ("\b\t\n\f\r", "\\b\\t\\n\\f\\r"),
        ("\x00\x01\x0b\x0e\x1f\x7f\x80", "\\u0000\\u0001\\u000b\\u000e\\u001f\x7f\x80"),
        ("<script>&'", "<script>&'"),
        ("\ufeff\uffff\U0010ffff", "\ufeff\uffff\U0010ffff"),
        ("", ""),
    ],
)
def test_the_signed_body_spells_text_as_javascript_does(plaintext: str, spelled: str) -> None:
    inner = crypto_box_seal_open(sealed(plaintext).ciphertext, DEVICE.public.encryption, b"\x04" * 32)
    body = decode_base64url(json.loads(inner)["body"]).decode()
    assert body == V4_BODY[: V4_BODY.index('"plaintext":')] + f'"plaintext":"{spelled}"}}'


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udd12\ud83d"])
def test_a_lone_surrogate_is_not_sealed(text: str) -> None:
    with pytest.raises(SealError, match="surrogate"):
        sealed(text)
    with pytest.raises(SealError, match="surrogate"):
        seal(
            keys=SITE,
            recipient=DEVICE.public,
            job_id=text,
            direction="payload",
            plaintext="x",
            deadline_at_ms=DEADLINE_MS,
        )


@pytest.mark.parametrize("deadline_at_ms", [0, -1, 9_007_199_254_740_992])
def test_a_deadline_out_of_range_is_not_sealed(deadline_at_ms: int) -> None:
    with pytest.raises(SealError, match="deadline"):
        sealed(deadline_at_ms=deadline_at_ms)


def test_nothing_is_sealed_to_a_key_that_its_identity_has_not_signed() -> None:
    swapped = replace(DEVICE.public, encryption=STRANGER.public.encryption)
    with pytest.raises(SealError, match="has not signed"):
        seal(
            keys=SITE,
            recipient=swapped,
            job_id="job_1",
            direction="payload",
            plaintext="x",
            deadline_at_ms=DEADLINE_MS,
        )


def test_nothing_is_sealed_to_a_key_of_low_order() -> None:
    zero = bytes(32)
    context: dict[str, Any] = {
        "keys": SITE,
        "recipient": PublicIdentity(
            DEVICE.public.identity, zero, DEVICE.signer.sign(b"byollm/v1/encryption-key:" + b"A" * 43)
        ),
        "job_id": "job_1",
        "direction": "payload",
        "plaintext": "x",
        "deadline_at_ms": DEADLINE_MS,
    }
    with pytest.raises(SealError, match="unusable"):
        seal(**context)
    with pytest.raises(SealError, match="unusable"):
        seal_with_ephemeral(**context, ephemeral_secret=b"\x09" * 32)


def test_the_largest_ciphertext_is_6_mib() -> None:
    # A body of 4,718,472 bytes is 6,291,296 characters of base64url; with the signature, the JSON around
    # both and the box that is 6,291,456 bytes.
    frame = len(V4_BODY) - len('{\\"prompt\\":\\"hello\\"}')
    assert len(sealed("a" * (4_718_472 - frame)).ciphertext) == 6_291_456
    with pytest.raises(SealError, match="6291456"):
        sealed("a" * (4_718_473 - frame))


@pytest.mark.parametrize(
    "change",
    [
        {"note": "x"},
        {"ciphertext": "AA=="},
        {"ciphertext": 5},
        {"recipientKeyId": ""},
        {"senderKeyId": ""},
        {"senderKeyId": None},
        {"direction": "both"},
        {"direction": None},
        {"deadlineAt": 0},
        {"deadlineAt": True},
        {"deadlineAt": 1.5},
        {"deadlineAt": "1767312000000"},
        {"deadlineAt": 9_007_199_254_740_992},
    ],
)
def test_json_of_another_form_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"envelope|base64url|padding"):
        Envelope.from_json(sealed().to_json() | change)


@pytest.mark.parametrize("value", [None, [], "text", {}, {"ciphertext": "AA"}])
def test_json_that_is_no_envelope_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="exactly the keys"):
        Envelope.from_json(value)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@settings(deadline=None)
@given(plaintext=TEXT, job_id=TEXT)
def test_what_is_sealed_opens_to_the_same_text(plaintext: str, job_id: str) -> None:
    envelope = seal(
        keys=SITE,
        recipient=DEVICE.public,
        job_id=job_id,
        direction="payload",
        plaintext=plaintext,
        deadline_at_ms=DEADLINE_MS,
    )
    assert opened(envelope, job_id=job_id) == plaintext
    assert opened(Envelope.from_json(envelope.to_json()), job_id=job_id) == plaintext


@settings(deadline=None)
@given(text=st.text(st.characters(), min_size=1, max_size=50))
def test_text_is_sealed_exactly_when_utf_8_can_spell_it(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(SealError):
            sealed(text)
    else:
        assert opened(sealed(text)) == text


@settings(deadline=None)
@given(position=st.integers(0, 475), bits=st.integers(1, 255))
def test_a_ciphertext_with_any_byte_changed_is_refused(position: int, bits: int) -> None:
    changed = bytearray(FIXED.ciphertext)
    changed[position] ^= bits
    assert refusal(replace(FIXED, ciphertext=bytes(changed))) is Refusal.UNOPENABLE


def test_the_unused_bit_of_the_ephemeral_key_is_bound_too() -> None:
    changed = bytearray(FIXED.ciphertext)
    changed[31] ^= 0x80
    assert refusal(replace(FIXED, ciphertext=bytes(changed))) is Refusal.UNOPENABLE


def test_a_ciphertext_cut_anywhere_is_refused() -> None:
    for length in range(476):
        assert refusal(replace(FIXED, ciphertext=FIXED.ciphertext[:length])) is Refusal.UNOPENABLE


@settings(deadline=None)
@given(inner=st.binary(max_size=200))
def test_a_box_with_any_other_content_is_refused(inner: bytes) -> None:
    assert refusal(boxed(inner)) in (Refusal.MALFORMED, Refusal.BAD_SIGNATURE)


@settings(deadline=None)
@given(body=st.binary(max_size=200))
def test_any_other_body_is_refused(body: bytes) -> None:
    assume(body != V4_BODY.encode())
    assert refusal(signed(body)) in (Refusal.MALFORMED, Refusal.CONTEXT_MISMATCH)
