"""Which of several keys signs."""

from relay_service.client.signing_keys import CurrentSigner, SigningKeys
from service_common.signing import Signer
from service_common.verification import verify_signature

NEW, OLD = Signer(b"\x01" * 32), Signer(b"\x02" * 32)


def test_the_present_key_signs_until_it_is_refused() -> None:
    keys = SigningKeys([NEW, OLD])
    signer = CurrentSigner(keys)
    assert verify_signature(NEW.public_key, b"x", signer.sign(b"x"))
    assert keys.refused(0)
    assert verify_signature(OLD.public_key, b"x", signer.sign(b"x"))


def test_two_that_were_refused_at_once_move_on_once() -> None:
    keys = SigningKeys([NEW, OLD])

    assert keys.refused(0)
    assert keys.refused(0)
    assert keys.current is OLD


def test_when_every_key_was_refused_another_try_is_of_no_use() -> None:
    keys = SigningKeys([NEW, OLD])

    assert keys.refused(0)
    assert not keys.refused(1)
    assert keys.current is NEW
    assert not SigningKeys([NEW]).refused(0)


def test_a_key_that_was_taken_begins_the_count_anew() -> None:
    keys = SigningKeys([NEW, OLD])
    keys.refused(0)
    keys.accepted(1)

    assert keys.refused(1)
    assert keys.current is NEW
