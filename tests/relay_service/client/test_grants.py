from dataclasses import replace

import pytest

from relay_service.client.grants import (
    Grant,
    GrantRefusal,
    grant_of,
    sign_grant,
    statement,
    verify_grant,
)
from relay_service.client.wire import timestamp_of
from relay_service.core.identity import decode_base64url
from sealwork.relay.v1 import job_pb2
from service_common.signing import Signer

pytestmark = pytest.mark.interop

CONTROL = Signer(b"\x05" * 32)
ISSUED_AT_MS = 1_767_225_600_000
GRANT = Grant(
    grant_id="grant_1",
    job_id="job_1",
    site="BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK",
    user="alice",
    owner="alice",
    purpose="writing",
    kind="llm.generate",
    service="qwen",
    issued_at_ms=ISSUED_AT_MS,
)
SIGNED = sign_grant(GRANT, CONTROL)


def verdict(
    message: job_pb2.SignedGrant = SIGNED,
    *,
    owner: str = "alice",
    job_id: str = "job_1",
    now_ms: int = ISSUED_AT_MS,
    control_plane: bytes = CONTROL.public_key,
) -> Grant | GrantRefusal:
    return verify_grant(message, control_plane=control_plane, owner=owner, job_id=job_id, now_ms=now_ms)


def altered(**fields: object) -> job_pb2.SignedGrant:
    message = job_pb2.SignedGrant()
    message.CopyFrom(SIGNED)
    for name, value in fields.items():
        match value:
            case int():
                message.issue_time.CopyFrom(timestamp_of(value))
            case _:
                setattr(message, name, value)
    return message


def test_the_key_of_the_fixed_seed() -> None:
    assert CONTROL.public_key == decode_base64url("bnoc3Smwt4_ROvTFWY_v9O8qlxZuPKby5Pv8zYBQW_E")


def test_the_statement_of_the_vector() -> None:
    assert statement(GRANT) == (
        b'["byollm/v1/grant","grant_1",1767225600000,"job_1","llm.generate","alice","writing","qwen",'
        b'"BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK","alice"]'
    )


def test_the_signature_of_the_vector() -> None:
    expected = "6KOrVbV83wSzUyjiIHkeuKMpuUG-7hmyWwU-twZlCZzXlZLDc41SZriHPtU3pFn7mGLmy4VMkf3wAERWWmMzDQ"
    assert SIGNED.signature == decode_base64url(expected)
    assert verdict() == GRANT
    assert grant_of(SIGNED) == GRANT


def test_texts_are_spelled_as_javascript_spells_them() -> None:
    odd = replace(GRANT, user='a"\\\b\t\n\f\r\x00\x1f\x7f/<>&\u2028\u2029é日🔒')
    assert statement(odd).endswith(
        b'"a\\"\\\\\\b\\t\\n\\f\\r\\u0000\\u001f\x7f/<>&' + "\u2028\u2029é日🔒".encode() + b'"]'
    )


def test_a_lone_surrogate_cannot_be_signed() -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        statement(replace(GRANT, user="\ud800"))


@pytest.mark.parametrize(
    "fields", [{"user": ""}, {"grant_id": ""}, {"issued_at_ms": 0}, {"issued_at_ms": 2**53}]
)
def test_what_is_no_whole_grant_is_not_signed(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="grant"):
        sign_grant(replace(GRANT, **fields), CONTROL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [
        (ISSUED_AT_MS - 30_001, GrantRefusal.FROM_THE_FUTURE),
        (ISSUED_AT_MS - 30_000, GRANT),
        (ISSUED_AT_MS + 120_000, GRANT),
        (ISSUED_AT_MS + 120_001, GrantRefusal.EXPIRED),
    ],
)
def test_the_window_is_inclusive_at_both_ends(now_ms: int, expected: Grant | GrantRefusal) -> None:
    assert verdict(now_ms=now_ms) == expected


@pytest.mark.parametrize(
    "message",
    [
        altered(grant_id="grant_2"),
        altered(site="BYOLLM-ZT0J-R4QK-ND6E-DB2X-PTDC-6MQS"),
        altered(user="bob"),
        altered(purpose="default"),
        altered(kind="llm.chat"),
        altered(service="other"),
        altered(at=ISSUED_AT_MS + 1),
        altered(signature=b""),
        altered(signature=b"\x00" * 64),
        altered(signature=SIGNED.signature + b"\x00"),
    ],
)
def test_every_field_is_signed(message: job_pb2.SignedGrant) -> None:
    assert verdict(message) is GrantRefusal.BAD_SIGNATURE


def test_another_control_plane_is_a_stranger() -> None:
    assert verdict(control_plane=Signer(b"\x06" * 32).public_key) is GrantRefusal.BAD_SIGNATURE
    assert verdict(control_plane=b"") is GrantRefusal.BAD_SIGNATURE


def test_what_is_no_whole_grant_is_malformed() -> None:
    fraction = altered()
    fraction.issue_time.nanos += 1
    for message in (altered(service=""), altered(at=0), fraction, job_pb2.SignedGrant()):
        assert verdict(message) is GrantRefusal.MALFORMED


def test_the_reasons_have_an_order() -> None:
    late = ISSUED_AT_MS + 120_001
    assert verdict(owner="bob", job_id="job_2", now_ms=late) is GrantRefusal.WRONG_OWNER
    assert verdict(job_id="job_2", now_ms=late) is GrantRefusal.WRONG_JOB
    assert verdict(altered(user="bob"), now_ms=late) is GrantRefusal.EXPIRED
    assert verdict(altered(user="bob"), now_ms=0) is GrantRefusal.FROM_THE_FUTURE
