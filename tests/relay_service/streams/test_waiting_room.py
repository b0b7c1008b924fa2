"""Which of the devices that wait is asked first."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from relay_service.core.model import Audience, Capability, Route, WorkAvailable
from relay_service.core.projection import ProjectedDevice
from relay_service.waiting_room import Claimant, WaitingRoom
from tests.relay_service.relay_fixture import PROJECTION, keys_of

KIND = "llm.generate"
ROUTE = Route("demo", "alice")
WORK = WorkAvailable(ROUTE, KIND, Audience.TEAM)


@dataclass(eq=False)
class Waiting:
    """Someone who waits, and does nothing else."""

    runner_id: str
    owner: str = "alice"
    kinds: frozenset[str] = frozenset({KIND})
    matrix: tuple[Capability, ...] = ()
    free: int = 1
    request_id: str | None = None
    device: ProjectedDevice = field(init=False)

    def __post_init__(self) -> None:
        self.device = ProjectedDevice(self.owner, self.runner_id, keys_of(self.runner_id).public)

    async def grant(self, granted: Any, now_ms: int) -> None:
        raise NotImplementedError


def names(claimants: list[Claimant]) -> list[str]:
    return [claimant.device.runner_id for claimant in claimants]


def test_everyone_who_may_is_asked_once_in_random_order() -> None:
    room = WaitingRoom(Random(1))
    for number in range(10):
        room.enter(Waiting(f"alice-{number}"))
    room.enter(Waiting("bob", owner="bob"))
    room.enter(Waiting("chat", kinds=frozenset({"llm.chat"})))
    orders = {tuple(names(list(room.candidates(WORK, PROJECTION)))) for _ in range(20)}
    assert {tuple(sorted(order)) for order in orders} == {
        ("alice-0", *(f"alice-{number}" for number in range(1, 10)), "bob")
    }
    assert len(orders) == 20


def test_each_is_first_about_as_often_as_the_others() -> None:
    room = WaitingRoom(Random(1))
    for name in ("a", "b", "c"):
        room.enter(Waiting(name))
    room.enter(Waiting("bob", owner="bob"))
    first = Counter(next(iter(room.candidates(WORK, PROJECTION))).device.runner_id for _ in range(4_000))
    assert set(first) == {"a", "b", "c", "bob"}
    assert min(first.values()) > 900


def test_private_work_is_for_its_owners_devices() -> None:
    room = WaitingRoom(Random(1))
    room.enter(Waiting("alice"))
    room.enter(Waiting("bob", owner="bob"))
    private = WorkAvailable(ROUTE, KIND, Audience.PRIVATE)
    assert names(list(room.candidates(private, PROJECTION))) == ["alice"]


def test_reserved_work_is_for_one_device() -> None:
    room = WaitingRoom(Random(1))
    for name in ("runner-1", "runner-2"):
        room.enter(Waiting(name))
    reserved = WorkAvailable(ROUTE, KIND, Audience.TEAM, "runner-2")
    assert names(list(room.candidates(reserved, PROJECTION))) == ["runner-2"]
    unknown = WorkAvailable(ROUTE, KIND, Audience.TEAM, "nobody")
    assert list(room.candidates(unknown, PROJECTION)) == []


def test_who_left_is_not_asked_and_entering_twice_is_entering_once() -> None:
    room = WaitingRoom(Random(1))
    stays, leaves = Waiting("stays"), Waiting("leaves", kinds=frozenset({KIND, "llm.chat"}))
    for claimant in (stays, leaves, stays, leaves):
        room.enter(claimant)
    assert sorted(names(room.everyone())) == ["leaves", "stays"]
    room.leave(leaves)
    room.leave(leaves)
    assert names(list(room.candidates(WORK, PROJECTION))) == ["stays"]
    assert names(room.everyone()) == ["stays"]
    room.leave(stays)
    assert list(room.candidates(WORK, PROJECTION)) == []
    assert room.everyone() == []


def test_nobody_is_asked_for_a_route_that_is_closed() -> None:
    room = WaitingRoom(Random(1))
    room.enter(Waiting("alice"))
    closed = WorkAvailable(Route("no-such-site", "alice"), KIND, Audience.TEAM)
    assert list(room.candidates(closed, PROJECTION)) == []
