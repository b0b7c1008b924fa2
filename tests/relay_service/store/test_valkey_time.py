from typing import Any

import pytest

from relay_service.store.base import StoreUnavailable

from .valkey_fixture import require_valkey


@pytest.fixture(autouse=True)
def valkey_is_installed() -> None:
    require_valkey()


class Server:
    """Answers with the next of these instants, and notes what it was asked."""

    def __init__(self, *instants: int) -> None:
        self.instants = list(instants)
        self.asked: list[tuple[Any, ...]] = []
        self.epoch = 1
        self.steady = 100.0
        self.setting = ""
        self.under_way = 0.0

    async def call(self, *call: Any) -> int:
        self.asked.append(call)
        self.steady += self.under_way
        if not self.instants:
            raise StoreUnavailable("gone")
        return self.instants.pop(0)


def time_of(server: Any) -> Any:
    from relay_service.store.valkey_time import ServerTime

    return ServerTime(server, lambda: server.setting, lambda: server.steady)


async def test_time_is_counted_on_for_a_quarter_of_a_second() -> None:
    server = Server(5_000, 6_000)
    time = time_of(server)
    assert await time.now_ms() == 5_000
    server.steady = 100.125
    assert await time.now_ms() == 5_125
    server.steady = 100.249
    assert await time.now_ms() == 5_249
    server.steady = 100.25
    assert await time.now_ms() == 6_000
    assert server.asked == [("now", (), ""), ("now", (), "")]


async def test_it_is_ahead_rather_than_behind_by_what_the_question_took() -> None:
    server = Server(5_000)
    server.under_way = 0.0625
    time = time_of(server)
    assert await time.now_ms() == 5_000
    assert await time.now_ms() == 5_063


async def test_an_answer_that_was_long_under_way_is_not_counted_on() -> None:
    server = Server(5_000, 6_000)
    server.under_way = 0.25
    time = time_of(server)
    assert [await time.now_ms(), await time.now_ms()] == [5_000, 6_000]


async def test_a_new_connection_is_asked() -> None:
    server = Server(5_000, 4_000)
    time = time_of(server)
    assert await time.now_ms() == 5_000
    server.epoch = 2
    assert await time.now_ms() == 4_000


async def test_a_clock_that_is_set_is_asked_each_time() -> None:
    server = Server(5_000, 5_000, 9_000)
    server.setting = "5000"
    time = time_of(server)
    assert [await time.now_ms(), await time.now_ms()] == [5_000, 5_000]
    server.setting = ""
    assert await time.now_ms() == 9_000
    assert server.asked == [("now", (), "5000"), ("now", (), "5000"), ("now", (), "")]


async def test_a_server_that_is_away_is_missed() -> None:
    server = Server(5_000)
    time = time_of(server)
    assert await time.now_ms() == 5_000
    server.steady = 101.0
    with pytest.raises(StoreUnavailable):
        await time.now_ms()
