"""Which sites a device serves, and what the relay's directory can change about that."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay_service.client.keys import Keys
from relay_service.client.pin_file import PinFile
from relay_service.client.pins import PinError, SitePins
from relay_service.client.succession import SuccessionLink, sign_link
from relay_service.client.wire import identity_to_proto, timestamp_of
from sealwork.relay.v1 import site_directory_pb2
from service_common.clocks import ManualClock

START_MS = 1_700_000_000_000
WEEK_MS = 604_800_000
A, B, C = (Keys(bytes([n]) * 32, bytes([n + 1]) * 32, 1) for n in (1, 3, 5))


def pins(*keys: Keys, trust: bool = False) -> tuple[SitePins, ManualClock]:
    clock = ManualClock(START_MS)
    return SitePins([each.public for each in keys], clock, trust_directory=trust), clock


def entry(
    keys: Keys, *links: SuccessionLink, until_ms: int = 0, **changes: Any
) -> site_directory_pb2.ConsentedSite:
    succeeds = [{"identity": identity_to_proto(link.identity), "signature": link.signature} for link in links]
    return site_directory_pb2.ConsentedSite(
        **{
            "key_id": keys.key_id,
            "identity": identity_to_proto(keys.public),
            "succeeds": succeeds,
            "retiring_until_time": timestamp_of(until_ms),
            **changes,
        }
    )


def directory(*sites: site_directory_pb2.ConsentedSite) -> site_directory_pb2.SiteDirectory:
    return site_directory_pb2.SiteDirectory(sites=sites)


def test_only_what_is_pinned_may_sign() -> None:
    known, _ = pins(A, B)

    assert known.get(A.key_id) == A.public
    assert known.get(C.key_id) is None
    assert sorted(known) == sorted([A.key_id, B.key_id])


def test_an_identity_that_does_not_verify_cannot_be_pinned() -> None:
    with pytest.raises(PinError):
        SitePins({A.key_id: replace(A.public, encryption=B.public.encryption)}, ManualClock())


def test_a_stranger_in_the_directory_is_not_pinned() -> None:
    known, _ = pins(A)

    assert known.adopt(directory(entry(A), entry(B))) == frozenset()
    assert known.get(B.key_id) is None


def test_a_directory_that_is_trusted_pins_strangers_that_verify() -> None:
    known, _ = pins(trust=True)
    forged = replace(B.public, encryption=A.public.encryption)
    known.adopt(directory(entry(A), entry(B, identity=identity_to_proto(forged)), entry(C, key_id=B.key_id)))

    assert list(known) == [A.key_id]


def test_bytes_under_a_pinned_key_id_never_change() -> None:
    known, _ = pins(A, trust=True)
    other = Keys(A.identity_seed, B.encryption_secret, 1)
    assert other.key_id == A.key_id
    gone = known.adopt(directory(entry(other)))

    assert gone == frozenset()
    assert known.get(A.key_id) == A.public


def test_a_site_that_is_absent_is_pinned_no_longer_and_comes_back_as_it_was() -> None:
    known, _ = pins(A, B)
    assert known.adopt(directory(entry(A))) == {B.key_id}
    assert known.get(B.key_id) is None
    known.adopt(directory(entry(A), entry(B)))

    assert known.get(B.key_id) == B.public


def test_an_empty_directory_changes_nothing() -> None:
    known, _ = pins(A)

    assert known.adopt(directory()) == frozenset()
    assert known.get(A.key_id) == A.public


def test_a_paused_site_keeps_its_pin() -> None:
    known, _ = pins(A)
    known.adopt(directory(entry(A, awaiting_consent=True)))

    assert known.get(A.key_id) == A.public


def test_a_successor_is_adopted_and_the_old_key_retires() -> None:
    known, clock = pins(A)
    until_ms = START_MS + 1_000
    assert known.adopt(directory(entry(B, sign_link(A, B.key_id), until_ms=until_ms))) == frozenset()
    assert known.get(B.key_id) == B.public
    assert known.get(A.key_id) == A.public
    clock.advance(999)
    assert known.get(A.key_id) == A.public
    clock.advance(1)
    assert known.get(A.key_id) is None


def test_an_old_key_is_believed_for_a_week_at_most() -> None:
    known, clock = pins(A)
    known.adopt(directory(entry(B, sign_link(A, B.key_id), until_ms=START_MS + 10 * WEEK_MS)))
    clock.advance(WEEK_MS - 1)
    assert known.get(A.key_id) == A.public
    clock.advance(1)
    assert known.get(A.key_id) is None


def test_a_chain_leads_to_a_known_key_over_unknown_ones() -> None:
    known, _ = pins(A)
    known.adopt(directory(entry(C, sign_link(A, B.key_id), sign_link(B, C.key_id))))

    assert known.get(C.key_id) == C.public
    assert known.get(B.key_id) is None


@pytest.mark.parametrize("trust", [True, False])
def test_a_broken_chain_pins_nobody(trust: bool) -> None:
    known, _ = pins(A, trust=trust)
    link = sign_link(A, C.key_id)
    known.adopt(directory(entry(A), entry(B, SuccessionLink(A.public, link.signature))))

    assert list(known) == [A.key_id]


# -- what lasts, and what the owner is told ---------------------------------------------


class Machine:
    """A device that is started again and again, on one clock."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(START_MS)
        self.path = folder / "pins.json"
        self.events: list[tuple[str, Mapping[str, str]]] = []

    def start(self, *given: Keys, trust: bool = False) -> SitePins:
        started = SitePins(
            [each.public for each in given],
            self.clock,
            trust_directory=trust,
            file=PinFile(self.path),
            announce=lambda event, keys: self.events.append((event, keys)),
        )
        started.open()
        return started


def test_a_successor_and_the_end_of_the_old_key_outlive_a_restart(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    rotation = directory(entry(B, sign_link(A, B.key_id), until_ms=START_MS + 1_000))
    machine.start(A).adopt(rotation)
    again = machine.start(A)

    assert again.get(A.key_id) == A.public
    assert again.get(B.key_id) == B.public
    machine.clock.advance(1_000)
    assert machine.start(A).get(A.key_id) is None
    assert machine.start(A).get(B.key_id) == B.public
    assert machine.events == [("site-adopted", {"site": A.key_id, "successor": B.key_id})]


def test_a_restart_does_not_prolong_the_week_of_an_old_key(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    rotation = directory(entry(B, sign_link(A, B.key_id), until_ms=START_MS + 10 * WEEK_MS))
    machine.start(A).adopt(rotation)
    machine.clock.advance(WEEK_MS - 1)
    late = machine.start(A)
    late.adopt(rotation)
    assert late.get(A.key_id) == A.public
    machine.clock.advance(1)
    assert late.get(A.key_id) is None


def test_a_window_can_be_cut_short_and_not_made_longer(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    link = sign_link(A, B.key_id)
    known = machine.start(A)
    known.adopt(directory(entry(B, link, until_ms=START_MS + 5_000)))
    known.adopt(directory(entry(B, link, until_ms=START_MS + 9_000)))
    known.adopt(directory(entry(B, link, until_ms=START_MS + 2_000)))
    machine.clock.advance(1_999)
    assert known.get(A.key_id) == A.public
    machine.clock.advance(1)
    assert known.get(A.key_id) is None


def test_who_takes_a_pin_away_means_its_successors_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start(A, C).adopt(directory(entry(B, sign_link(A, B.key_id)), entry(C)))

    assert list(machine.start(C)) == [C.key_id]


def test_a_directory_that_is_no_longer_trusted_leaves_nothing_behind(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start(trust=True).adopt(directory(entry(A)))

    assert list(machine.start(trust=True)) == [A.key_id]
    assert list(machine.start()) == []
    assert machine.events == [("site-pinned", {"site": A.key_id})]


def test_an_old_key_is_not_brought_back_by_the_directory(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    known = machine.start(A)
    known.adopt(directory(entry(B, sign_link(A, B.key_id), until_ms=START_MS + 1_000)))
    machine.clock.advance(1_000)
    known.adopt(directory(entry(A), entry(B)))

    assert known.get(A.key_id) is None
    assert known.get(B.key_id) == B.public
    assert machine.events[1:] == [("retired-refused", {"site": A.key_id})]


def test_an_old_key_leads_to_one_successor_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    known = machine.start(A)
    known.adopt(directory(entry(B, sign_link(A, B.key_id), until_ms=START_MS + 1_000)))
    known.adopt(directory(entry(B), entry(C, sign_link(A, C.key_id))))

    assert known.get(C.key_id) is None
    assert machine.events[1:] == [("succession-refused", {"site": C.key_id})]


def test_keys_in_between_are_believed_for_the_window(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    known = machine.start(A)
    chain = (sign_link(A, B.key_id), sign_link(B, C.key_id))
    known.adopt(directory(entry(C, *chain, until_ms=START_MS + 1_000)))
    assert [known.get(each.key_id) for each in (A, B, C)] == [A.public, B.public, C.public]
    machine.clock.advance(1_000)
    assert [known.get(each.key_id) for each in (A, B, C)] == [None, None, C.public]


def test_a_broken_chain_keeps_the_old_pin_and_is_told_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    known = machine.start(A)
    forged = SuccessionLink(A.public, sign_link(A, C.key_id).signature)
    for _ in range(3):
        assert known.adopt(directory(entry(B, forged))) == frozenset()

    assert known.get(A.key_id) == A.public
    assert known.get(B.key_id) is None
    assert machine.events == [("succession-refused", {"site": B.key_id})]


def test_other_keys_under_a_pinned_id_are_refused_for_ever(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    other = Keys(A.identity_seed, B.encryption_secret, 1)
    for _ in range(2):
        known = machine.start(A, trust=True)
        known.adopt(directory(entry(other)))
        assert known.get(A.key_id) == A.public
    assert machine.events == [("keys-refused", {"site": A.key_id})] * 2


def test_the_first_work_for_a_site_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for _ in range(2):
        known = machine.start(A)
        known.served(A.key_id)
        known.served(A.key_id)

    assert machine.events == [("first-job", {"site": A.key_id})]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"version":2,"adopted":{},"retiredAt":{},"served":[]}', '{"version":1,"adopted":[]}'],
)
def test_a_damaged_file_is_not_passed_over(tmp_path: Path, content: str) -> None:
    machine = Machine(tmp_path)
    machine.path.write_text(content)

    with pytest.raises(PinError, match=r"pins\.json: damaged"):
        machine.start(A)


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    known = machine.start(A)
    machine.path.mkdir()
    known.adopt(directory(entry(B, sign_link(A, B.key_id))))

    assert known.get(B.key_id) == B.public
