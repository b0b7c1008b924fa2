"""Byte for byte: what the shared vectors and the fixed seeds give."""

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from nacl.bindings import crypto_box_seal_open

from relay_service.client.envelope import (
    Envelope,
    EnvelopeRefused,
    Refusal,
    open_envelope,
    seal,
    seal_with_ephemeral,
)
from relay_service.core.identity import PublicIdentity, decode_base64url
from tests.relay_service.client.fixed_envelopes import (
    DEADLINE_MS,
    DEVICE,
    FIXED,
    SITE,
    V4_BODY,
    V4_CIPHERTEXT,
    V4_PLAINTEXT,
    V4_SIGNATURE,
    VECTORS,
    opened,
    refusal,
    vector_keys,
)

pytestmark = pytest.mark.interop

V5_PLAINTEXT = (
    '{"outcome":{"outcome":"ok","text":"hi"},"ran":{"model":"gemma3:12b","backendClass":"http",'
    '"durationMs":1234,"stop":"end","stopReported":true}}'
)
V5_SIGNATURE = "Dz3R1RRzKfPASflQYDMSspxrXBzhqLWZI61ER6UTf2tB0_0_SlWUnaBKXTqLukQSYcju3HtINUU5XbbAerlnCg"


def test_a_fixed_ephemeral_key_gives_the_exact_ciphertext() -> None:
    envelope = seal_with_ephemeral(
        keys=SITE,
        recipient=DEVICE.public,
        job_id="job_1",
        direction="payload",
        plaintext=V4_PLAINTEXT,
        deadline_at_ms=DEADLINE_MS,
        ephemeral_secret=b"\x09" * 32,
    )
    expected = {
        "ciphertext": V4_CIPHERTEXT,
        "recipientKeyId": "BYOLLM-PRQ8-CZX2-YCXF-WRPN-TTRP-8BGP",
        "senderKeyId": "BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK",
        "direction": "payload",
        "deadlineAt": 1_767_312_000_000,
    }
    assert envelope.to_json() == expected
    assert len(envelope.ciphertext) == 476
    assert hashlib.sha256(envelope.ciphertext).hexdigest() == (
        "3a94f0512cb70a36ed084ef0dae59bc96b18b600b74c5ff589dabef895497cd0"
    )
    assert (
        envelope.ciphertext[:32].hex() == "57db4b359f23ae5e146e4e2512056704722506348c150c14753d0c933d04d421"
    )
    assert len(json.dumps(envelope.to_json(), separators=(",", ":"))) == 810
    assert opened(envelope) == V4_PLAINTEXT


def test_libsodium_opens_what_a_fixed_ephemeral_key_sealed() -> None:
    ciphertext = decode_base64url(V4_CIPHERTEXT)
    inner = crypto_box_seal_open(ciphertext, DEVICE.public.encryption, b"\x04" * 32)
    assert len(inner) == 428
    body = base64.urlsafe_b64encode(V4_BODY.encode()).rstrip(b"=").decode()
    assert inner.decode() == f'{{"body":"{body}","signature":"{V4_SIGNATURE}"}}'


def test_an_envelope_of_the_fixed_seeds_opens() -> None:
    assert opened(FIXED) == V4_PLAINTEXT
    assert refusal(FIXED, job_id="job_2") is Refusal.CONTEXT_MISMATCH
    later = replace(FIXED, deadline_at_ms=DEADLINE_MS + 1)
    assert refusal(later) is Refusal.CONTEXT_MISMATCH


def test_a_result_is_signed_as_the_vector_says() -> None:
    envelope = seal(
        keys=DEVICE,
        recipient=SITE.public,
        job_id="job_1",
        direction="result",
        plaintext=V5_PLAINTEXT,
        deadline_at_ms=DEADLINE_MS,
    )
    inner = json.loads(crypto_box_seal_open(envelope.ciphertext, SITE.public.encryption, b"\x02" * 32))
    assert inner["signature"] == V5_SIGNATURE
    assert opened(envelope, keys=SITE, sender=DEVICE.public, direction="result") == V5_PLAINTEXT


@pytest.mark.parametrize("vector", VECTORS["envelopes"], ids=lambda vector: vector["name"])
def test_envelope_vectors_open(vector: dict[str, Any]) -> None:
    envelope = Envelope.from_json(vector["envelope"])
    assert envelope.to_json() == vector["envelope"]
    assert len(json.dumps(envelope.to_json(), separators=(",", ":"))) == vector["envelope_bytes"]
    plaintext = open_envelope(
        envelope,
        keys=vector_keys(vector["recipient"]),
        sender=PublicIdentity.from_json(VECTORS["public"][vector["sender"]]),
        job_id=vector["context"]["jobId"],
        direction=vector["context"]["direction"],
        now_ms=vector["context"]["deadlineAt"] - 1,
    )
    assert vector["opens"]["ok"] is True
    assert plaintext == vector["opens"]["plaintext"] == vector["plaintext"]


@pytest.mark.parametrize("vector", VECTORS["envelopes"], ids=lambda vector: vector["name"])
def test_envelope_vectors_are_signed_as_we_sign(vector: dict[str, Any]) -> None:
    """The box is random but what it holds is not: both sides put the same bytes into it."""
    recipient = vector_keys(vector["recipient"])

    def inside(ciphertext: bytes) -> bytes:
        return crypto_box_seal_open(ciphertext, recipient.public.encryption, recipient.encryption_secret)

    ours = seal(
        keys=vector_keys(vector["sender"]),
        recipient=recipient.public,
        job_id=vector["context"]["jobId"],
        direction=vector["context"]["direction"],
        plaintext=vector["plaintext"],
        deadline_at_ms=vector["context"]["deadlineAt"],
    )
    assert inside(ours.ciphertext) == inside(Envelope.from_json(vector["envelope"]).ciphertext)
    assert len(json.dumps(ours.to_json(), separators=(",", ":"))) == vector["envelope_bytes"]


@pytest.mark.parametrize("vector", VECTORS["refused_envelopes"], ids=lambda vector: vector["name"])
def test_refused_envelope_vectors_are_refused(vector: dict[str, Any]) -> None:
    expected = vector["expected"]
    site = PublicIdentity.from_json(VECTORS["public"]["site"])
    assert VECTORS["public"]["site"]["identity"] == vector["sender_identity_public"]
    assert site.key_id == expected["senderKeyId"]
    with pytest.raises(EnvelopeRefused) as caught:
        open_envelope(
            Envelope.from_json(vector["envelope"]),
            keys=vector_keys("device"),
            sender=site,
            job_id=expected["jobId"],
            direction=expected["direction"],
            now_ms=expected["deadlineAt"] - 1,
        )
    assert caught.value.reason == vector["result"]["reason"]
    assert str(caught.value) == vector["result"]["reason"]
