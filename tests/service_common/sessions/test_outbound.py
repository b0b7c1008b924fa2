"""Two lanes towards one peer, one writer."""

import asyncio

import pytest

from service_common.clocks import ManualClock
from service_common.sessions.outbound import Outbound
from tests.service_common.sessions.fakes import Item, settle


class Peer:
    """Takes frames one at a time, when the test lets it."""

    def __init__(self, clock: ManualClock, **bounds: int) -> None:
        self.frames: list[list[str | None]] = []
        self.taking = asyncio.Event()
        self.stalled = 0
        self.room = 0
        self.fails = False
        given = {"frame_bytes": 1_000, "controls": 8, "notices": 8, "stall_ms": 10_000} | bounds
        self.outbound: Outbound[Item] = Outbound(
            self.write, self.on_stalled, clock=clock, on_room=self.on_room, **given
        )

    async def write(self, items: list[Item]) -> None:
        await self.taking.wait()
        if self.fails:
            raise ConnectionError
        self.frames.append([item.arm for item in items])

    def on_stalled(self) -> None:
        self.stalled += 1

    def on_room(self) -> None:
        self.room += 1


@pytest.fixture
def peer(manual_clock: ManualClock) -> Peer:
    return Peer(manual_clock)


async def test_what_has_queued_goes_in_one_frame_controls_first(peer: Peer) -> None:
    for arm in ("n1", "n2"):
        assert peer.outbound.notice(Item(arm))
    for arm in ("c1", "c2"):
        assert peer.outbound.control(Item(arm))
    assert peer.outbound.waiting == 4
    peer.taking.set()
    await peer.outbound.flush()
    assert peer.frames == [["c1", "c2", "n1", "n2"]]
    assert peer.outbound.waiting == 0


async def test_a_control_overtakes_notices_that_wait_behind_a_write(peer: Peer) -> None:
    peer.outbound.notice(Item("n1"))
    await settle()
    for arm in ("n2", "n3"):
        peer.outbound.notice(Item(arm))
    peer.outbound.control(Item("cancel"))
    peer.taking.set()
    await peer.outbound.flush()
    assert peer.frames == [["n1"], ["cancel", "n2", "n3"]]


async def test_frames_keep_to_their_size(peer: Peer) -> None:
    peer.taking.set()
    for number in range(6):
        peer.outbound.notice(Item(f"n{number}", size=400))
    await peer.outbound.flush()
    assert peer.frames == [["n0", "n1"], ["n2", "n3"], ["n4", "n5"]]


async def test_an_item_larger_than_a_frame_travels_alone(peer: Peer) -> None:
    peer.taking.set()
    for arm, size in (("small", 10), ("large", 5_000), ("after", 10)):
        peer.outbound.notice(Item(arm, size=size))
    await peer.outbound.flush()
    assert peer.frames == [["small"], ["large"], ["after"]]


async def test_a_lane_that_is_full_takes_no_more(peer: Peer) -> None:
    assert all(peer.outbound.control(Item("c")) for _ in range(8))
    assert not peer.outbound.control(Item("c"))
    assert peer.outbound.notice_room == 8
    assert all(peer.outbound.notice(Item("n")) for _ in range(8))
    assert not peer.outbound.notice(Item("n"))
    assert peer.outbound.notice_room == 0
    peer.outbound.close()


async def test_who_found_the_lane_full_is_told_when_it_is_empty(peer: Peer) -> None:
    for _ in range(9):
        peer.outbound.notice(Item("n"))
    await settle()
    assert peer.outbound.waiting == 0
    assert peer.room == 1
    peer.taking.set()
    await peer.outbound.flush()
    for _ in range(8):
        peer.outbound.notice(Item("n"))
    await peer.outbound.flush()
    assert peer.room == 1


async def test_a_write_that_does_not_end_is_a_stall(peer: Peer, manual_clock: ManualClock) -> None:
    peer.outbound.control(Item("c"))
    await settle()
    manual_clock.advance(9_999)
    assert peer.stalled == 0
    manual_clock.advance(1)
    assert peer.stalled == 1
    peer.outbound.close()


async def test_a_process_that_stood_still_looks_again_before_it_blames_the_peer(
    peer: Peer, manual_clock: ManualClock
) -> None:
    peer.outbound.control(Item("c"))
    await settle()
    manual_clock.stall(11_001)
    manual_clock.advance(999)
    assert peer.stalled == 0
    manual_clock.advance(1)
    assert peer.stalled == 1
    peer.outbound.close()


async def test_each_write_has_its_own_time(peer: Peer, manual_clock: ManualClock) -> None:
    for _ in range(3):
        peer.outbound.control(Item("c"))
        await settle()
        manual_clock.advance(9_000)
        peer.taking.set()
        await peer.outbound.flush()
        peer.taking.clear()
    assert peer.stalled == 0
    # When the last frame was handed over, not when it was through.
    assert peer.outbound.last_sent == 18.0
    assert manual_clock.pending == 0


async def test_nothing_is_written_after_the_close(peer: Peer) -> None:
    peer.outbound.control(Item("c1"))
    await settle()
    peer.outbound.control(Item("c2"))
    peer.outbound.close()
    peer.taking.set()
    await settle()
    peer.outbound.control(Item("c3"))
    await settle()
    assert peer.frames == []


async def test_a_peer_that_is_gone_is_written_to_no_more(peer: Peer, manual_clock: ManualClock) -> None:
    peer.fails = True
    peer.taking.set()
    peer.outbound.control(Item("c1"))
    await peer.outbound.flush()
    peer.fails = False
    peer.outbound.control(Item("c2"))
    await settle()
    assert peer.frames == []
    assert manual_clock.pending == 0


async def test_room_for_answers_comes_when_half_of_them_are_on_their_way(peer: Peer) -> None:
    for _ in range(3):
        peer.outbound.control(Item("c", size=900))
    await asyncio.wait_for(peer.outbound.control_room(), 1)
    await settle()
    for _ in range(3):
        peer.outbound.control(Item("c", size=900))
    waiting = asyncio.create_task(peer.outbound.control_room())
    await settle()
    assert not waiting.done()
    peer.taking.set()
    await asyncio.wait_for(waiting, 1)


@pytest.mark.parametrize("end", ["close", "failure"])
async def test_nobody_waits_for_room_after_the_end(peer: Peer, end: str) -> None:
    for _ in range(6):
        peer.outbound.control(Item("c", size=900))
    waiting = asyncio.create_task(peer.outbound.control_room())
    await settle()
    if end == "close":
        peer.outbound.close()
    else:
        peer.fails = True
        peer.taking.set()
    await asyncio.wait_for(waiting, 1)


async def test_a_waiter_that_is_cancelled_leaves_the_next_one_waiting(peer: Peer) -> None:
    for _ in range(6):
        peer.outbound.control(Item("c", size=900))
    first = asyncio.create_task(peer.outbound.control_room())
    second = asyncio.create_task(peer.outbound.control_room())
    await settle()
    first.cancel()
    await settle()
    assert not second.done()
    peer.outbound.close()
    await asyncio.wait_for(second, 1)


async def test_the_writer_exists_only_while_there_is_something_to_send(peer: Peer) -> None:
    peer.taking.set()
    before = len(asyncio.all_tasks())
    peer.outbound.control(Item("c"))
    assert len(asyncio.all_tasks()) == before + 1
    await peer.outbound.flush()
    assert len(asyncio.all_tasks()) == before
    await peer.outbound.flush()
