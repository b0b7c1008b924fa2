"""Which of several keys signs."""

from relay_service.client.signing_keys import CurrentSigner, SigningKeys
from service_common.signing import Signer
from service_common.verification import verify_signature

NEW, OLD, OLDEST = (Signer(bytes([number]) * 32) for number in (1, 2, 3))


def test_the_present_key_signs_until_it_is_refused() -> None:
    keys = SigningKeys([NEW, OLD])
    signer = CurrentSigner(keys)
    assert verify_signature(NEW.public_key, b"x", signer.sign(b"x"))
    keys.refused(0)
    assert verify_signature(OLD.public_key, b"x", signer.sign(b"x"))


def test_two_that_were_refused_at_once_move_on_once() -> None:
    keys = SigningKeys([NEW, OLD])
    keys.refused(0)
    keys.refused(0)
    assert keys.current is OLD


def test_after_the_last_key_comes_the_present_one_again() -> None:
    keys = SigningKeys([NEW, OLD])
    keys.refused(0)
    keys.refused(1)
    assert keys.current is NEW


def test_every_key_is_tried_once_beginning_with_the_one_in_use() -> None:
    keys = SigningKeys([NEW, OLD, OLDEST])
    keys.refused(0)
    assert keys.untried(()) == 1
    assert keys.untried({1}) == 2
    assert keys.untried({1, 2}) == 0
    assert keys.untried({0, 1, 2}) is None
    assert keys.at(2) is OLDEST


def test_a_key_that_was_taken_stays_in_use() -> None:
    keys = SigningKeys([NEW, OLD, OLDEST])
    keys.accepted(2)
    assert keys.current is OLDEST
