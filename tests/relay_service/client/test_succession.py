import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay_service.client.keys import Keys
from relay_service.client.succession import (
    MAX_LINKS,
    ChainOutcome,
    SuccessionLink,
    Verdict,
    sign_link,
    verify_chain,
)
from relay_service.core.identity import PublicIdentity, decode_base64url

pytestmark = pytest.mark.interop

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors/relay.json").read_bytes())
VECTOR: dict[str, Any] = VECTORS["succession"]

SITE = Keys(b"\x01" * 32, b"\x02" * 32, 1)
SITE2 = Keys(b"\x07" * 32, b"\x08" * 32, 1)
BROKEN = Verdict(ChainOutcome.BROKEN)


def nobody(_key_id: str) -> bool:
    return False


def only(*keys: Keys) -> Callable[[str], bool]:
    return {each.key_id for each in keys}.__contains__


def generations(count: int) -> list[Keys]:
    return [Keys(bytes([number]) * 32, bytes([number + 100]) * 32, 1) for number in range(1, count + 1)]


def chain(keys: list[Keys]) -> list[SuccessionLink]:
    """Links from the first to the last of these, oldest first."""
    return [sign_link(old, new.key_id) for old, new in itertools.pairwise(keys)]


def test_the_signature_of_the_fixed_seeds() -> None:
    link = sign_link(SITE, "BYOLLM-ZT0J-R4QK-ND6E-DB2X-PTDC-6MQS")
    expected = "r77S1NNTvlQVZ67t9Tfa2EsEDV8zMuBUBjvd7wTML8d5Hhf63ZUuxA_Zxgxrm7tO5FNY6RDGBBLTrv8TptaRCA"
    assert link.signature == decode_base64url(expected)
    assert link.identity == SITE.public
    assert SITE2.key_id == "BYOLLM-ZT0J-R4QK-ND6E-DB2X-PTDC-6MQS"


def test_the_link_of_the_vectors() -> None:
    link = SuccessionLink.from_json(VECTOR["link"])
    assert link.to_json() == VECTOR["link"]
    successor = PublicIdentity.from_json(VECTORS["public"]["site2"])
    assert successor.key_id == VECTOR["to"]
    assert VECTOR["verifies"] is True
    verdict = verify_chain(successor, [link], {VECTOR["from"]}.__contains__)
    assert verdict == Verdict(
        ChainOutcome.ADOPTED, predecessor=VECTOR["walk"]["from"], path=tuple(VECTOR["walk"]["path"])
    )


def test_the_unknown_origin_of_the_vectors() -> None:
    successor = PublicIdentity.from_json(VECTORS["public"]["site2"])
    verdict = verify_chain(successor, [SuccessionLink.from_json(VECTOR["link"])], nobody)
    assert VECTOR["walk_unknown"]["failure"] == "unknown-origin"
    assert verdict == Verdict(ChainOutcome.UNKNOWN, path=tuple(VECTOR["walk_unknown"]["path"]))


def test_the_link_of_the_vectors_vouches_for_nobody_else() -> None:
    link = SuccessionLink.from_json(VECTOR["link"])
    for name in ("device", "other"):
        successor = PublicIdentity.from_json(VECTORS["public"][name])
        assert verify_chain(successor, [link], lambda _key_id: True) == BROKEN


def test_a_chain_leads_to_the_nearest_known_predecessor() -> None:
    first, second, third, fourth = keys = generations(4)
    links = chain(keys)
    ids = tuple(each.key_id for each in keys)
    known_first = verify_chain(fourth.public, links, only(first))
    assert known_first == Verdict(ChainOutcome.ADOPTED, first.key_id, ids)
    known_two = verify_chain(fourth.public, links, only(first, third))
    assert known_two == Verdict(ChainOutcome.ADOPTED, third.key_id, ids[2:])
    known_second = verify_chain(fourth.public, links, only(second))
    assert known_second == Verdict(ChainOutcome.ADOPTED, second.key_id, ids[1:])


def test_a_chain_with_the_newest_first_is_broken() -> None:
    keys = generations(3)
    assert verify_chain(keys[-1].public, chain(keys)[::-1], only(keys[0])) == BROKEN


def test_no_chain_is_an_unknown_site() -> None:
    assert verify_chain(SITE2.public, [], only(SITE)) == Verdict(
        ChainOutcome.UNKNOWN, path=("BYOLLM-ZT0J-R4QK-ND6E-DB2X-PTDC-6MQS",)
    )


def test_the_longest_chain_has_64_links() -> None:
    keys = generations(66)
    longest, too_long = chain(keys[1:]), chain(keys)
    assert MAX_LINKS == len(longest) == 64
    assert verify_chain(keys[-1].public, longest, only(keys[1])).outcome is ChainOutcome.ADOPTED
    assert verify_chain(keys[-1].public, too_long, only(keys[0], keys[-2])) == BROKEN


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_bad_link_breaks_the_chain_wherever_it_is(position: int) -> None:
    keys = generations(4)
    links = chain(keys)
    signature = bytearray(links[position].signature)
    signature[5] ^= 1
    links[position] = replace(links[position], signature=bytes(signature))
    for known in (only(keys[0]), only(keys[2]), nobody, lambda _key_id: True):
        assert verify_chain(keys[-1].public, links, known) == BROKEN


def test_a_link_that_is_missing_breaks_the_chain() -> None:
    keys = generations(4)
    first, _, third = chain(keys)
    assert verify_chain(keys[-1].public, [first, third], only(keys[0])) == BROKEN


@pytest.mark.parametrize("signature", [b"", b"\x00" * 63, b"\x00" * 64, b"\x00" * 65])
def test_garbage_for_a_signature_breaks_the_chain(signature: bytes) -> None:
    assert verify_chain(SITE2.public, [SuccessionLink(SITE.public, signature)], only(SITE)) == BROKEN


def test_an_identity_that_is_not_bound_breaks_the_chain() -> None:
    link = sign_link(SITE, SITE2.key_id)
    swapped = replace(link, identity=replace(SITE.public, encryption=SITE2.public.encryption))
    assert verify_chain(SITE2.public, [swapped], only(SITE)) == BROKEN
    successor = replace(SITE2.public, encryption=SITE.public.encryption)
    assert verify_chain(successor, [link], only(SITE)) == BROKEN


def test_a_chain_that_returns_to_a_key_is_broken() -> None:
    first, second = generations(2)
    there_and_back = chain([first, second, first])
    assert verify_chain(first.public, there_and_back, only(second)) == BROKEN
    statement = f"byollm/v1/site-succession:{first.key_id}:{first.key_id}".encode()
    to_itself = SuccessionLink(first.public, first.signer.sign(statement))
    assert verify_chain(first.public, [to_itself], only(first)) == BROKEN


def test_a_successor_cannot_vouch_for_itself() -> None:
    statement = f"byollm/v1/site-succession:{SITE.key_id}:{SITE2.key_id}".encode()
    forged = SuccessionLink(SITE.public, SITE2.signer.sign(statement))
    assert verify_chain(SITE2.public, [forged], only(SITE)) == BROKEN


@pytest.mark.parametrize(
    "successor",
    ["", "BYOLLM-ZT0J", "BYOLLM-ZT0J-R4QK-ND6E-DB2X-PTDC-6MQS:x", "BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK"],
)
def test_only_another_key_id_is_vouched_for(successor: str) -> None:
    with pytest.raises(ValueError, match="key id of another identity"):
        sign_link(SITE, successor)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"identity": VECTOR["link"]["identity"]},
        VECTOR["link"] | {"successor": VECTOR["to"]},
        VECTOR["link"] | {"signature": None},
        VECTOR["link"] | {"signature": VECTOR["link"]["signature"] + "=="},
        VECTOR["link"] | {"identity": "x"},
    ],
)
def test_a_link_of_another_form_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"link|signature|identity|base64url"):
        SuccessionLink.from_json(value)
