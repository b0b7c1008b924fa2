"""The proxy between real sockets; each test holds both ends and says what either may see."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.harness.fault_proxy import FaultProxy, fault_proxy
from tests.harness.waiting import eventually

MEGABYTE = 1024 * 1024
# More than all buffers between the two ends can hold.
MORE_THAN_FITS = b"x" * (16 * MEGABYTE)
SETTINGS_FRAME = bytes.fromhex("000000 04 00 00000000")
PING_FRAME = bytes.fromhex("000008 06 00 00000000") + b"8 octets"
DATA_FRAME = bytes.fromhex("000005 00 00 00000001") + b"hello"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass
class End:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def hears(self, expected: bytes) -> bool:
        async with asyncio.timeout(10):
            return await self.reader.readexactly(len(expected)) == expected

    async def hears_the_end(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def is_reset(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return bool(await self.hears_the_end()) and False
        return True

    def says(self, data: bytes) -> None:
        self.writer.write(data)


class Network:
    """A server that hands out its ends, a proxy before it, and clients."""

    def __init__(self, proxy: FaultProxy, accepted: asyncio.Queue[End], ends: list[End]) -> None:
        self.proxy = proxy
        self._accepted = accepted
        self._ends = ends

    async def connect(self) -> End:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.proxy.port))
        self._ends.append(End(*await asyncio.open_connection(sock=client)))
        return self._ends[-1]

    async def pair(self) -> tuple[End, End]:
        client = await self.connect()
        async with asyncio.timeout(10):
            server = await self._accepted.get()
        return client, server

    def nobody_came(self) -> bool:
        return self._accepted.empty()


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    accepted: asyncio.Queue[End] = asyncio.Queue()
    ends: list[End] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(End(reader, writer))
        accepted.put_nowait(ends[-1])

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server, fault_proxy(*server.sockets[0].getsockname()) as proxy:
        yield Network(proxy, accepted, ends)
        for end in ends:
            end.writer.transport.abort()
        await eventually(lambda: not proxy.live, describe="every connection ends with its client")


async def test_bytes_and_ends_pass_and_are_counted(network: Network) -> None:
    client, server = await network.pair()
    client.says(b"question")
    assert await server.hears(b"question")
    client.writer.write_eof()
    assert await server.hears_the_end() == b""
    server.says(b"answer!")
    server.writer.close()
    assert await client.hears_the_end() == b"answer!"
    proxy = network.proxy
    await eventually(lambda: not proxy.live)
    assert (proxy.accepted, proxy.opened) == (1, 1)
    assert (proxy.up.received_bytes, proxy.up.delivered_bytes, proxy.up.dropped_bytes) == (8, 8, 0)
    assert (proxy.down.received_bytes, proxy.down.delivered_bytes, proxy.down.dropped_bytes) == (7, 7, 0)


async def test_a_reset_of_one_end_reaches_the_other(network: Network) -> None:
    client, server = await network.pair()
    client.writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
    )
    client.writer.transport.abort()
    assert await server.is_reset()


async def test_a_server_that_is_not_there_resets_the_client(network: Network) -> None:
    with socket.socket() as vacant:
        vacant.bind(("127.0.0.1", 0))
        network.proxy.target = vacant.getsockname()
        client = await network.connect()
        assert await client.is_reset()
    assert (network.proxy.accepted, network.proxy.opened) == (1, 0)


async def test_a_cut_loses_bytes_for_good_and_restoring_resets_what_lived_through_it(
    network: Network,
) -> None:
    client, server = await network.pair()
    network.proxy.cut()
    client.says(b"lost")
    server.says(b"lost too")
    await eventually(lambda: network.proxy.up.dropped_bytes == 4)
    await eventually(lambda: network.proxy.down.dropped_bytes == 8)
    newcomer = await network.connect()
    newcomer.says(b"anyone?")
    await eventually(lambda: network.proxy.up.dropped_bytes == 11)
    assert network.nobody_came()

    await network.proxy.restore()

    assert [await end.is_reset() for end in (client, server, newcomer)] == [True, True, True]
    client, server = await network.pair()
    client.says(b"again")
    assert await server.hears(b"again")


async def test_a_cut_hides_the_end_of_a_client(network: Network) -> None:
    client, server = await network.pair()
    other, other_server = await network.pair()
    network.proxy.cut()
    client.writer.transport.abort()
    await client.writer.wait_closed()
    other.says(b"mark")
    # The mark came after the end, so the end has been seen and kept.
    await eventually(lambda: network.proxy.up.dropped_bytes == 4)
    assert not server.reader.at_eof()
    assert len(network.proxy.live) == 2
    await network.proxy.restore()
    assert await server.is_reset()
    assert await other_server.is_reset()


async def test_a_cut_may_refuse_newcomers(network: Network) -> None:
    network.proxy.cut(refuse=True)
    assert await (await network.connect()).is_reset()
    await network.proxy.restore()
    client, server = await network.pair()
    client.says(b"again")
    assert await server.hears(b"again")


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_half_open_loses_one_direction_and_keeps_the_other(network: Network, direction: str) -> None:
    client, server = await network.pair()
    proxy = network.proxy
    if direction == "up":
        proxy.half_open("up")
        deaf, speaker, lane = server, client, proxy.up
    else:
        proxy.half_open("down")
        deaf, speaker, lane = client, server, proxy.down
    speaker.says(b"lost")
    deaf.says(b"still there?")
    assert await speaker.hears(b"still there?")
    await eventually(lambda: lane.dropped_bytes == 4)
    await proxy.restore()
    assert await deaf.is_reset()


async def test_half_open_holds_the_server_side_open_after_the_client_died(network: Network) -> None:
    client, server = await network.pair()
    network.proxy.half_open("up")
    client.writer.transport.abort()
    server.says(b"to nobody")
    # The proxy's first write to the dead client succeeds and the next one fails; the server hears of neither.
    await eventually(lambda: network.proxy.down.delivered_bytes == 9)
    server.says(b"to nobody")
    await eventually(lambda: network.proxy.down.dropped_bytes == 9)
    assert len(network.proxy.live) == 1
    assert not server.reader.at_eof()
    await network.proxy.restore()
    assert await server.is_reset()


async def test_a_pause_delays_and_loses_nothing(network: Network) -> None:
    client, server = await network.pair()
    network.proxy.pause()
    client.says(b"question")
    server.says(b"answer")
    client.writer.write_eof()
    newcomer = await network.connect()
    newcomer.says(b"hello")
    await eventually(lambda: network.proxy.accepted == 2)
    assert network.proxy.up.delivered_bytes == network.proxy.down.delivered_bytes == 0
    assert network.nobody_came()

    network.proxy.resume()

    assert await server.hears_the_end() == b"question"
    assert await client.hears(b"answer")


async def test_reset_all_is_a_reset_at_both_ends(network: Network) -> None:
    client, server = await network.pair()
    await network.proxy.reset_all()
    with pytest.raises(ConnectionResetError):
        await client.hears_the_end()
    with pytest.raises(ConnectionResetError):
        await server.hears_the_end()


async def test_close_all_is_a_clean_end_at_both_ends_even_with_input_unread(network: Network) -> None:
    client, server = await network.pair()
    network.proxy.stop_reading_from_client()
    client.says(b"read and held back")
    await eventually(lambda: network.proxy.up.received_bytes == 18)
    client.says(b"never read")
    await network.proxy.close_all()
    assert await client.hears_the_end() == b""
    assert await server.hears_the_end() == b""


async def test_a_throttle_is_felt_by_the_sender_and_loses_nothing(network: Network) -> None:
    client, server = await network.pair()
    network.proxy.throttle(MEGABYTE // 16)
    client.says(MORE_THAN_FITS)
    sending = asyncio.create_task(client.writer.drain())
    assert await server.hears(b"x")
    # At this rate the whole takes minutes; what is not delivered waits at the sender, not in the proxy.
    assert not sending.done()
    await eventually(lambda: network.proxy.up.delivered_bytes > 4096)
    assert network.proxy.up.received_bytes - network.proxy.up.delivered_bytes < MEGABYTE
    network.proxy.throttle(None)
    assert await server.hears(MORE_THAN_FITS[1:])
    await sending


async def test_a_proxy_that_does_not_read_blocks_one_sender_and_not_the_other(network: Network) -> None:
    client, server = await network.pair()
    network.proxy.stop_reading_from_client()
    client.says(MORE_THAN_FITS)
    sending = asyncio.create_task(client.writer.drain())
    server.says(b"the other way")
    assert await client.hears(b"the other way")
    assert not sending.done()
    network.proxy.stop_reading_from_server()
    network.proxy.resume()
    assert await server.hears(MORE_THAN_FITS)
    await sending


async def test_a_delay_keeps_order_and_is_never_shorter_than_asked(network: Network) -> None:
    client, server = await network.pair()
    network.proxy.delay(50)
    loop = asyncio.get_running_loop()
    start = loop.time()
    for _ in range(3):
        client.says(b"a")
        client.says(b"b")
    client.writer.write_eof()
    assert await server.hears_the_end() == b"ababab"
    # The loop's clock may fire a timer early by its resolution.
    assert loop.time() - start >= 0.049


async def test_silence_is_reset_and_speech_is_not(network: Network) -> None:
    silent, silent_server = await network.pair()
    talker, talker_server = await network.pair()
    network.proxy.idle_timeout(1.0)
    reset = asyncio.create_task(silent.is_reset())
    while not reset.done():
        talker.says(b"t")
        assert await talker_server.hears(b"t")
    assert await reset
    assert await silent_server.is_reset()
    network.proxy.idle_timeout(None)
    talker.says(b"last")
    assert await talker_server.hears(b"last")


async def test_one_side_speaking_is_not_enough_when_each_way_counts(network: Network) -> None:
    _, server = await network.pair()
    network.proxy.idle_timeout(0.2, each_way=True)
    reset = asyncio.create_task(server.is_reset())
    while not reset.done():
        server.says(b"h")
        await asyncio.wait([reset], timeout=0.01)
    assert await reset
    assert network.proxy.up.received_bytes == 0


async def test_pings_do_not_break_the_silence_where_data_frames_count(network: Network) -> None:
    client, server = await network.pair()
    network.proxy.idle_timeout(0.2, only_data_frames=True)
    client.says(PREFACE + SETTINGS_FRAME)
    reset = asyncio.create_task(server.is_reset())
    while not reset.done():
        server.says(PING_FRAME)
        await asyncio.wait([reset], timeout=0.01)
    assert await reset
    assert network.proxy.up.data_frames == network.proxy.down.data_frames == 0


async def test_data_frames_are_counted_whatever_the_pieces_they_come_in(network: Network) -> None:
    client, server = await network.pair()
    stream = PREFACE + SETTINGS_FRAME + DATA_FRAME + PING_FRAME + DATA_FRAME + DATA_FRAME
    for position in range(len(stream)):
        client.says(stream[position : position + 1])
        assert await server.hears(stream[position : position + 1])
    server.says(SETTINGS_FRAME + DATA_FRAME)
    assert await client.hears(SETTINGS_FRAME + DATA_FRAME)
    assert (network.proxy.up.data_frames, network.proxy.down.data_frames) == (3, 1)
