"""Who may open, when, and in which order it is asked."""

import json
from dataclasses import replace

import pytest
from nacl.bindings import crypto_box_seal, crypto_box_seal_open

from relay_service.client.envelope import EnvelopeRefused, Refusal, seal
from relay_service.core.identity import encode_base64url
from tests.relay_service.client.fixed_envelopes import (
    DEADLINE_MS,
    DEVICE,
    NOW_MS,
    SITE,
    STRANGER,
    V4_BODY,
    V4_PLAINTEXT,
    V4_SIGNATURE,
    boxed,
    opened,
    refusal,
    sealed,
    signed,
)


def test_an_envelope_opens_only_before_its_deadline() -> None:
    assert opened(sealed(), now_ms=DEADLINE_MS - 1) == V4_PLAINTEXT
    assert refusal(sealed(), now_ms=DEADLINE_MS) is Refusal.EXPIRED
    assert refusal(sealed(), now_ms=DEADLINE_MS + 1) is Refusal.EXPIRED
    assert refusal(sealed(deadline_at_ms=1), now_ms=NOW_MS) is Refusal.EXPIRED


def test_a_header_of_others_is_refused_before_anything_else() -> None:
    envelope = replace(sealed(), ciphertext=b"")
    assert refusal(envelope, keys=STRANGER, now_ms=DEADLINE_MS) is Refusal.NOT_FOR_US
    assert refusal(envelope, sender=STRANGER.public, now_ms=DEADLINE_MS) is Refusal.NOT_FOR_US
    assert refusal(envelope, direction="result", now_ms=DEADLINE_MS) is Refusal.NOT_FOR_US


def test_expiry_is_asked_before_the_box_is_opened() -> None:
    assert refusal(replace(sealed(), ciphertext=b""), now_ms=DEADLINE_MS) is Refusal.EXPIRED


def test_a_deadline_moved_in_the_header_does_not_make_it_younger() -> None:
    envelope = replace(sealed(deadline_at_ms=NOW_MS), deadline_at_ms=DEADLINE_MS)
    assert refusal(envelope) is Refusal.CONTEXT_MISMATCH


def test_a_box_for_another_key_does_not_open_under_our_header() -> None:
    envelope = seal(
        keys=SITE,
        recipient=STRANGER.public,
        job_id="job_1",
        direction="payload",
        plaintext="x",
        deadline_at_ms=DEADLINE_MS,
    )
    relabelled = replace(envelope, recipient_key_id=DEVICE.key_id)
    assert refusal(relabelled) is Refusal.UNOPENABLE


def test_a_body_signed_for_another_recipient_is_refused() -> None:
    """A recipient that passes the signed body on cannot make it look sealed for the next one."""
    envelope = sealed()
    inner = crypto_box_seal_open(envelope.ciphertext, DEVICE.public.encryption, b"\x04" * 32)
    passed_on = replace(
        envelope,
        ciphertext=crypto_box_seal(inner, STRANGER.public.encryption),
        recipient_key_id=STRANGER.key_id,
    )
    assert refusal(passed_on, keys=STRANGER) is Refusal.CONTEXT_MISMATCH


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"body":"AA"}',
        b'{"body":"AA","signature":"AA","note":"x"}',
        b'{"body":1,"signature":"AA"}',
        b'{"body":"AA==","signature":"AA"}',
        b'{"body":"AB","signature":"AA"}',
        b'{"body":"AA","signature":"+/+/"}',
        b'{"body":"AA","signature":null}',
        b'{"body":"\xff","signature":"AA"}',
        b"[" * 5000,
    ],
)
def test_a_box_that_holds_something_else_is_malformed(inner: bytes) -> None:
    assert refusal(boxed(inner)) is Refusal.MALFORMED


@pytest.mark.parametrize("signature", ["", "AA", V4_SIGNATURE[:-2], V4_SIGNATURE + "AA", "A" * 86])
def test_another_signature_is_refused(signature: str) -> None:
    inner = json.dumps({"body": encode_base64url(V4_BODY.encode()), "signature": signature})
    assert refusal(boxed(inner.encode())) is Refusal.BAD_SIGNATURE


def test_the_signature_is_asked_before_the_body_is_read() -> None:
    inner = json.dumps({"body": encode_base64url(b"{ not json"), "signature": V4_SIGNATURE})
    assert refusal(boxed(inner.encode())) is Refusal.BAD_SIGNATURE


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(json.loads(V4_BODY), indent=2, sort_keys=True),
        V4_BODY.replace("1767312000000", "1.767312e12"),
        V4_BODY.replace("job_1", "\\u006aob_1"),
        V4_BODY.replace('{"v"', '{"note":"x","v"'),
    ],
)
def test_any_spelling_of_a_signed_body_opens(body: str) -> None:
    assert opened(signed(body.encode())) == V4_PLAINTEXT


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"jobId": "job_2"}, Refusal.CONTEXT_MISMATCH),
        ({"senderKeyId": STRANGER.key_id}, Refusal.CONTEXT_MISMATCH),
        ({"recipientKeyId": STRANGER.key_id}, Refusal.CONTEXT_MISMATCH),
        ({"direction": "result"}, Refusal.CONTEXT_MISMATCH),
        ({"deadlineAt": DEADLINE_MS - 1}, Refusal.CONTEXT_MISMATCH),
        ({"deadlineAt": str(DEADLINE_MS)}, Refusal.CONTEXT_MISMATCH),
        ({"deadlineAt": None}, Refusal.CONTEXT_MISMATCH),
        ({"plaintext": None}, Refusal.MALFORMED),
        ({"plaintext": {"prompt": "hello"}}, Refusal.MALFORMED),
        ({"v": "byollm/v2/envelope"}, Refusal.MALFORMED),
    ],
)
def test_a_signed_body_of_another_context_is_refused(change: dict[str, object], reason: Refusal) -> None:
    assert refusal(signed(json.dumps(json.loads(V4_BODY) | change).encode())) is reason


@pytest.mark.parametrize("name", ["v", "jobId", "senderKeyId", "recipientKeyId", "deadlineAt", "direction"])
def test_a_signed_body_that_lacks_a_field_is_refused(name: str) -> None:
    body = {key: value for key, value in json.loads(V4_BODY).items() if key != name}
    assert refusal(signed(json.dumps(body).encode())) in (Refusal.CONTEXT_MISMATCH, Refusal.MALFORMED)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"v":"\xff"}', V4_BODY.encode("utf-16")])
def test_a_signed_body_that_is_no_object_is_malformed(body: bytes) -> None:
    assert refusal(signed(body)) is Refusal.MALFORMED


def test_a_refusal_holds_nothing_of_the_content() -> None:
    with pytest.raises(EnvelopeRefused) as caught:
        opened(signed(b'{"plaintext":"secret prompt"'))
    assert caught.value.args == ("malformed",)
    assert caught.value.__context__ is None
