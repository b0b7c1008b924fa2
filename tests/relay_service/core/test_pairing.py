"""Codes, statements and decisions of a pairing."""

from collections.abc import Callable

import pytest

from relay_service.core.identity import PublicIdentity
from relay_service.core.pairing import (
    DENIAL,
    Codes,
    Decision,
    Pairing,
    PairingIntroduction,
    PairingState,
    Platform,
    code_statement,
    decide,
    draw_codes,
    pairing_id,
    read_user_code,
    start_statement,
)

IDENTITY = PublicIdentity(bytes(range(32)), bytes(32), bytes(64))
PENDING = Pairing("id", "AAAA-BBBB", PairingIntroduction(IDENTITY, "desk", Platform.LINUX, "1.0.0"), 600_000)
APPROVAL = Decision(PairingState.APPROVED, "alice", "runner-1")


def bytes_of(*pieces: bytes) -> Callable[[int], bytes]:
    """A source that gives these pieces, each of which must be as long as is asked for."""
    rest = list(pieces)

    def draw(count: int) -> bytes:
        piece = rest.pop(0)
        assert len(piece) == count
        return piece

    return draw


def test_the_device_code_is_32_bytes_and_the_user_code_8() -> None:
    codes = draw_codes(bytes_of(bytes(range(32)), bytes([0, 9, 10, 17, 18, 20, 26, 31])))
    assert codes.device_code == "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert codes.user_code == "09AH-JMTZ"


def test_a_byte_counts_modulo_32() -> None:
    codes = draw_codes(bytes_of(bytes(32), bytes([32, 63, 64, 95, 128, 159, 224, 255])))
    assert codes.user_code == "0Z0Z-0Z0Z"


def test_the_text_form_of_codes_keeps_the_secret() -> None:
    assert repr(Codes("secret", "AAAA-BBBB")) == "Codes(user_code='AAAA-BBBB')"


@pytest.mark.parametrize("typed", ["abcd-ef12", " ABCD-EF12\n", "\tAbCd-eF12 "])
def test_a_user_code_is_trimmed_and_upper_cased(typed: str) -> None:
    assert read_user_code(typed) == "ABCD-EF12"


def test_a_pairing_is_kept_under_the_sha256_of_its_device_code() -> None:
    assert pairing_id("abc") == "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"


def test_any_text_has_a_pairing_id() -> None:
    assert pairing_id("\ud800") != pairing_id("")


def test_the_statement_of_a_start() -> None:
    assert start_statement(bytes(range(32)), 1_700_000_000_000, bytes(range(16))) == (
        b"sealwork/v1/pairing\n"
        b"/sealwork.relay.v1.DaemonPlaneService/StartPairing\n"
        b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n"
        b"1700000000000\n"
        b"AAECAwQFBgcICQoLDA0ODw"
    )


def test_the_statement_of_a_device_code() -> None:
    assert code_statement("code") == b"sealwork/v1/pairing-code\ncode"


def test_the_first_decision_stays() -> None:
    assert PENDING.state is PairingState.PENDING
    approved = decide(PENDING, APPROVAL)
    assert (approved.state, approved.decision) == (PairingState.APPROVED, APPROVAL)
    assert decide(approved, DENIAL) is approved
    denied = decide(PENDING, DENIAL)
    assert denied.state is PairingState.DENIED
    assert decide(denied, APPROVAL) is denied
