"""The clock of a store when the machine's clock is moved."""

from dataclasses import dataclass

from durable_service.store.clock import StoreClock

HOUR_MS = 3_600_000


@dataclass
class Machine:
    wall: int = 1_700_000_000_000
    steady: int = 5_000

    def pass_ms(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.steady += milliseconds

    def clock(self, floor_ms: int = 0) -> StoreClock:
        return StoreClock(lambda: self.wall, lambda: self.steady, floor_ms)


def test_it_follows_the_wall_clock() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.now_ms() == 1_700_000_000_000
    machine.pass_ms(250)
    assert clock.now_ms() == 1_700_000_000_250


def test_an_hour_back_does_not_make_a_lease_longer() -> None:
    machine = Machine()
    clock = machine.clock()
    granted = clock.now_ms()
    machine.wall -= HOUR_MS
    assert clock.now_ms() == granted
    machine.pass_ms(30_000)
    assert clock.now_ms() == granted + 30_000


def test_a_step_forward_is_followed_and_a_step_back_after_it_is_not() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += HOUR_MS
    assert clock.now_ms() == 1_700_003_600_000
    machine.wall -= HOUR_MS
    machine.pass_ms(1)
    assert clock.now_ms() == 1_700_003_600_001


def test_it_begins_where_it_had_stopped() -> None:
    machine = Machine()
    clock = machine.clock(floor_ms=1_700_000_900_000)
    assert clock.now_ms() == 1_700_000_900_000
    machine.pass_ms(10)
    assert clock.now_ms() == 1_700_000_900_010
