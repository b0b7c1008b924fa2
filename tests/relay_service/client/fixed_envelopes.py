"""Parties with fixed seeds, one envelope between them, and the shared vectors."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from nacl.bindings import crypto_box_seal

from relay_service.client.envelope import (
    Direction,
    Envelope,
    EnvelopeRefused,
    Refusal,
    open_envelope,
    seal,
)
from relay_service.client.keys import Keys
from relay_service.core.identity import PublicIdentity, decode_base64url, encode_base64url

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors/relay.json").read_bytes())

SITE = Keys(b"\x01" * 32, b"\x02" * 32, 1)
DEVICE = Keys(b"\x03" * 32, b"\x04" * 32, 1)
STRANGER = Keys(b"\x07" * 32, b"\x08" * 32, 1)
DEADLINE_MS = 1_767_312_000_000
NOW_MS = 1_767_225_600_000

V4_PLAINTEXT = '{"prompt":"hello"}'
V4_BODY = (
    '{"v":"byollm/v1/envelope","jobId":"job_1","senderKeyId":"BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK",'
    '"recipientKeyId":"BYOLLM-PRQ8-CZX2-YCXF-WRPN-TTRP-8BGP","deadlineAt":1767312000000,'
    '"direction":"payload","plaintext":"{\\"prompt\\":\\"hello\\"}"}'
)
V4_SIGNATURE = "yILKaD8k-YGG-CGY9hcEVr8fh1wmZpTdWqb6C0N8i697aKfMwEAhvWwnbXVwNLhf-VfhAMBzrPlcea7BI20UAQ"
V4_CIPHERTEXT = (
    "V9tLNZ8jrl4Ubk4lEgVnBHIlBjSMFQwUdT0Mkz0E1CGZNpmu1GvruJ0UK2sKxnMELa6uUqVzJZkiTEDEHF6-ak5vGxN1GPj6u44E"
    "moeNg2ybP62KTQzYh472t40IN5xGOPNCf0qK_abrhcGHLgimdKed9VC5IwLi8eqpLxuqsCkDP47oXlloYYJw74RLM9CNdNkBCdNU"
    "C0ZsNo-VIOnzwxmkehoNQYwNAf4tzjAm8Z3hPlCO2U9JgUj3vN5rqNmiYIXPR7CSgy6rRH6SZm_ExKxjmxbHJbv7vQOAPhJuomUe"
    "S3M5Atla81O2Z_QdXSuD6-sQhd-0F6HbQ7XHHHKLMIMxtafTS8mfJwHEmsGeIlTGGUlNrB3xQUR4r6Kkj1H5Fh2vKDioYBxVTxBd"
    "Smkz7MSyGIcd723iVzNFY6WNvH56lRdcVkj35bix61GPx-qy0XcHVkGQDVqFhBrPr7kPsxzNrCgh-Chge7k1bitEf5qdtJCm1StY"
    "94aPJ3q2-_03rJhn9-8JA0QnRknVU4hxvAQXd_kbASy-Bg8GJY6JBc4Uu9yl3sCz0Anm2j7j4PRY20oqnLEU4UVBf4xEKXb3SH6n"
    "RwBCFcVb4k5_I2EOjqgtSjAMpPNvXAVU-6Y"
)
FIXED = Envelope(
    decode_base64url(V4_CIPHERTEXT),
    "BYOLLM-PRQ8-CZX2-YCXF-WRPN-TTRP-8BGP",
    "BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK",
    "payload",
    DEADLINE_MS,
)


def vector_keys(name: str) -> Keys:
    stored = VECTORS["keys"][name]
    return Keys(
        base64.b64decode(stored["identityPrivate"])[-32:],
        base64.b64decode(stored["encryptionPrivate"])[-32:],
        stored["createdAt"],
    )


def sealed(plaintext: str = V4_PLAINTEXT, deadline_at_ms: int = DEADLINE_MS) -> Envelope:
    return seal(
        keys=SITE,
        recipient=DEVICE.public,
        job_id="job_1",
        direction="payload",
        plaintext=plaintext,
        deadline_at_ms=deadline_at_ms,
    )


def opened(
    envelope: Envelope,
    keys: Keys = DEVICE,
    sender: PublicIdentity = SITE.public,
    job_id: str = "job_1",
    direction: Direction = "payload",
    now_ms: int = NOW_MS,
) -> str:
    return open_envelope(
        envelope, keys=keys, sender=sender, job_id=job_id, direction=direction, now_ms=now_ms
    )


def refusal(envelope: Envelope, **expected: Any) -> Refusal:
    with pytest.raises(EnvelopeRefused) as caught:
        opened(envelope, **expected)
    return caught.value.reason


def boxed(inner: bytes) -> Envelope:
    """An envelope whose box holds these bytes, whatever they are."""
    return Envelope(
        crypto_box_seal(inner, DEVICE.public.encryption),
        "BYOLLM-PRQ8-CZX2-YCXF-WRPN-TTRP-8BGP",
        "BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK",
        "payload",
        DEADLINE_MS,
    )


def signed(body: bytes) -> Envelope:
    """An envelope whose body is these bytes, signed as the site signs."""
    signature = encode_base64url(SITE.signer.sign(body))
    return boxed(json.dumps({"body": encode_base64url(body), "signature": signature}).encode())
