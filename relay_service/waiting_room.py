"""Which devices would take work now, so that one job wakes one of them."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Protocol

from relay_service.core.model import Audience, Capability, GrantedJob, WorkAvailable
from relay_service.core.projection import ProjectedDevice, Projection
from service_common.clocks import Clock


class Claimant(Protocol):
    """A stream or a waiting call of a device."""

    @property
    def device(self) -> ProjectedDevice:
        """Whose it is, and its keys."""

    @property
    def kinds(self) -> frozenset[str]:
        """What it advertises now."""

    @property
    def matrix(self) -> tuple[Capability, ...]:
        """What it advertises now, in full."""

    @property
    def free(self) -> int:
        """How many grants it would take now."""

    @property
    def request_id(self) -> str | None:
        """Names a unary claim, so that its repeat gets the same grants."""

    async def grant(self, granted: Sequence[GrantedJob], now_ms: int) -> None:
        """Takes what the store has granted; `now_ms` is the store's clock."""


class WaitingClaimant(Claimant, Protocol):
    """A claimant that a call waits for."""

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Returns when something was granted, or after that time."""


class _Bag:
    """A set with random choice and removal, both without looking at the other members."""

    __slots__ = ("_members", "_places")

    def __init__(self) -> None:
        self._members: list[Claimant] = []
        self._places: dict[int, int] = {}

    def add(self, claimant: Claimant) -> None:
        if id(claimant) not in self._places:
            self._places[id(claimant)] = len(self._members)
            self._members.append(claimant)

    def discard(self, claimant: Claimant) -> None:
        place = self._places.pop(id(claimant), None)
        if place is None:
            return
        last = self._members.pop()
        if last is not claimant:
            self._members[place] = last
            self._places[id(last)] = place

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, place: int) -> Claimant:
        return self._members[place]


class WaitingRoom:
    """Claimants with free credit, by device owner and kind."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._bags: dict[tuple[str, str], _Bag] = {}

    def enter(self, claimant: Claimant) -> None:
        """The claimant would take work; entering twice is entering once."""
        for kind in claimant.kinds:
            self._bags.setdefault((claimant.device.owner, kind), _Bag()).add(claimant)

    def leave(self, claimant: Claimant) -> None:
        """The claimant takes no work for now."""
        for kind in claimant.kinds:
            key = (claimant.device.owner, kind)
            bag = self._bags.get(key)
            if bag is not None:
                bag.discard(claimant)
                if not bag:
                    del self._bags[key]

    def everyone(self) -> list[Claimant]:
        """All who wait, each once."""
        return list({id(claimant): claimant for claimant in _members([*self._bags.values()])}.values())

    def candidates(self, work: WorkAvailable, projection: Projection) -> Iterator[Claimant]:
        """Waiting claimants that may run this work, in random order.

        The first one costs no more than the number of people who may host the route;
        only a caller that wants a second pays for an order of them all.
        """
        bags = self._bags_for(work, projection)
        total = sum(map(len, bags))
        if not total:
            return
        first = self._pick(bags, self._random.randrange(total))
        yield first
        others = [claimant for claimant in _members(bags) if claimant is not first]
        self._random.shuffle(others)
        yield from others

    def _bags_for(self, work: WorkAvailable, projection: Projection) -> list[_Bag]:
        if work.only_runner is not None:
            return [self._reserved_bag(work, projection)]
        hosts: Iterable[str] = projection.hosts_of(work.route)
        if work.audience is Audience.PRIVATE:
            hosts = [host for host in hosts if host == work.route.owner]
        found = (self._bags.get((host, work.kind)) for host in hosts)
        return [bag for bag in found if bag is not None]

    def _reserved_bag(self, work: WorkAvailable, projection: Projection) -> _Bag:
        """The streams of the one device that the work is reserved for."""
        reserved = _Bag()
        device = projection.device(work.only_runner or "")
        if device is not None:
            for claimant in _members([self._bags.get((device.owner, work.kind), _Bag())]):
                if claimant.device.runner_id == device.runner_id:
                    reserved.add(claimant)
        return reserved

    def _pick(self, bags: list[_Bag], place: int) -> Claimant:
        for bag in bags:
            if place < len(bag):
                return bag[place]
            place -= len(bag)
        raise IndexError(place)


def _members(bags: list[_Bag]) -> Iterator[Claimant]:
    for bag in bags:
        for place in range(len(bag)):
            yield bag[place]
