"""A TCP proxy on loopback that behaves like a bad network between a client and a server."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal

# Up is from the client to the server.
Direction = Literal["up", "down"]
# Small, here and in the kernel, so that a peer that stops reading is soon felt by the sender.
_CHUNK_BYTES = 4 * 1024
_CHUNKS_UNDER_WAY = 64
_KERNEL_BUFFER_BYTES = 64 * 1024
_HTTP2_PREFACE_BYTES = 24
_HTTP2_HEADER_BYTES = 9
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Lane:
    """One direction over all connections: its counters, and the faults that `FaultProxy` sets."""

    received_bytes: int = 0
    delivered_bytes: int = 0
    dropped_bytes: int = 0
    # Of HTTP/2, among what was received; meaningless for other protocols and under TLS.
    data_frames: int = 0
    delay_seconds: float = 0.0
    bytes_per_second: int | None = None
    flowing: asyncio.Event = field(default_factory=asyncio.Event)


class FaultProxy:
    """Forwards connections from its own port to a target until told to misbehave; see `fault_proxy`.

    A plain method holds when it returns: not one byte passes against it. The async ones end connections and
    return when FIN or RST is out. Faults apply to connections yet to come as well, until they are undone.

    Attributes:
        target: Host and port of the server; a change applies to connections yet to come.
        up: Counters from the client to the server.
        down: Counters from the server to the client.
        accepted: Connections from clients, so far.
        opened: Connections to the server, so far.
        live: Connections there are now.
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.up = Lane()
        self.down = Lane()
        self.accepted = 0
        self.opened = 0
        self.live: set[_Connection] = set()
        self.connecting = asyncio.Event()
        self.dropping: frozenset[Direction] = frozenset()
        self.idle_seconds: float | None = None
        self.idle_only_data_frames = False
        self.idle_each_way = False
        self._refusing = False
        self.listener = _tcp_socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.port: int = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.resume()

    def cut(self, *, refuse: bool = False) -> None:
        """Black hole: sockets stay open, and every byte, FIN and RST is lost both ways. Overrides a pause.

        New connections are accepted and hear nothing, or with `refuse` are answered with RST.
        """
        self._refusing = refuse
        self.half_open("up")
        self.half_open("down")
        self.resume()

    def half_open(self, direction: Direction) -> None:
        """Loses everything in one direction; the other works."""
        self.dropping |= {direction}
        for connection in self.live:
            connection.dropping.add(direction)

    async def restore(self) -> None:
        """Ends `cut` and `half_open`, and resets the connections that lost bytes to them or may have."""
        self.dropping = frozenset()
        self._refusing = False
        await self._end({each for each in self.live if each.dropping}, reset=True)

    def pause(self) -> None:
        """Holds back everything, FIN and new connections included, until `resume`; loses nothing."""
        for gate in (self.up.flowing, self.down.flowing, self.connecting):
            gate.clear()

    def resume(self) -> None:
        """Ends `pause` and both kinds of `stop_reading`."""
        for gate in (self.up.flowing, self.down.flowing, self.connecting):
            gate.set()

    def stop_reading_from_client(self) -> None:
        """Backpressure: the client's writes block once the buffers between are full."""
        self.up.flowing.clear()

    def stop_reading_from_server(self) -> None:
        """Backpressure: the server's writes block once the buffers between are full."""
        self.down.flowing.clear()

    def delay(self, milliseconds: float) -> None:
        """Sets the latency of each direction, for what is read from now on; 0 ends it."""
        self.up.delay_seconds = self.down.delay_seconds = milliseconds / 1000

    def throttle(self, bytes_per_second: int | None) -> None:
        """Sets the rate that each connection has in each direction; None ends it."""
        assert bytes_per_second is None or bytes_per_second > 0, "to stop the flow, pause"
        self.up.bytes_per_second = self.down.bytes_per_second = bytes_per_second

    def idle_timeout(
        self, seconds: float | None, *, only_data_frames: bool = False, each_way: bool = False
    ) -> None:
        """Resets each connection that is silent for so long, counted from now at the earliest; None ends it.

        Args:
            seconds: Longest silence allowed.
            only_data_frames: HTTP/2 DATA frames alone break the silence, PING and SETTINGS do not.
            each_way: Each direction must speak; otherwise one speaks for both.
        """
        self.idle_seconds = seconds
        self.idle_only_data_frames = only_data_frames
        self.idle_each_way = each_way
        for connection in self.live:
            connection.restart_idle_clock()

    async def reset_all(self) -> None:
        """Sends RST to both ends of every connection; bytes under way are lost."""
        await self._end(self.live, reset=True)

    async def close_all(self) -> None:
        """Sends FIN to both ends of every connection; bytes under way are lost."""
        await self._end(self.live, reset=False)

    async def serve(self) -> None:
        """Accepts connections until it is cancelled, and then closes them."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as connections:
            # Not sock_accept(): cancelled at the wrong moment, it loses a socket that nobody closes.
            loop.add_reader(self.listener, self._accept, connections)
            try:
                await asyncio.Event().wait()
            finally:
                loop.remove_reader(self.listener)

    def _accept(self, connections: asyncio.TaskGroup) -> None:
        with contextlib.suppress(BlockingIOError):
            client, _ = self.listener.accept()
            self.accepted += 1
            connection = _Connection(self, client, connections)
            if self._refusing:
                _ = connection.end(reset=True)

    async def _end(self, connections: set["_Connection"], *, reset: bool) -> None:
        ending = [connection.end(reset=reset) for connection in connections]
        await asyncio.gather(*ending, return_exceptions=True)


@contextlib.asynccontextmanager
async def fault_proxy(host: str, port: int) -> AsyncIterator[FaultProxy]:
    """Runs a proxy in front of a server for as long as the block lasts."""
    proxy = FaultProxy(host, port)
    with proxy.listener:
        serving = asyncio.create_task(proxy.serve())
        try:
            yield proxy
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


class _Connection:
    """A client's socket, the socket to the server, and the flows between them."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, tasks: asyncio.TaskGroup) -> None:
        client.setblocking(False)
        self.proxy = proxy
        # Sticky for the life of the connection: TCP delivers nothing after a gap.
        self.dropping = set(proxy.dropping)
        self._client = client
        self._server = _tcp_socket()
        self._up = _Flow(self, proxy.up, "up", client, self._server)
        self._down = _Flow(self, proxy.down, "down", self._server, client)
        self._reset = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._task = tasks.create_task(self._run())
        # A callback and not a `finally`: a task cancelled before its first step runs no code of its own.
        self._task.add_done_callback(self._close)
        proxy.live.add(self)
        self.restart_idle_clock()

    def end(self, *, reset: bool) -> asyncio.Task[None]:
        """Starts the end; when the task is done, RST or FIN is out."""
        self._reset = reset
        self._task.cancel()
        return self._task

    def restart_idle_clock(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._up.heard_at = self._down.heard_at = asyncio.get_running_loop().time()
        self._check_idle()

    def _check_idle(self) -> None:
        # A reset that goes into a black hole is not seen.
        if self.proxy.idle_seconds is None or self.dropping:
            return
        loop = asyncio.get_running_loop()
        decisive = min if self.proxy.idle_each_way else max
        due = decisive(self._up.heard_at, self._down.heard_at) + self.proxy.idle_seconds
        if loop.time() >= due:
            _ = self.end(reset=True)
        else:
            # A turn later than due: after a stall of this loop, what has arrived meanwhile is read first.
            self._idle_timer = loop.call_at(due, loop.call_soon, self._check_idle)

    async def _run(self) -> None:
        try:
            await self.proxy.connecting.wait()
            if "up" in self.dropping:
                # The server never hears of the client: nobody is on the other side.
                await self._up.receive()
            await asyncio.get_running_loop().sock_connect(self._server, self.proxy.target)
            self.proxy.opened += 1
            async with asyncio.TaskGroup() as flows:
                for flow in (self._up, self._down):
                    flows.create_task(flow.receive())
                    flows.create_task(flow.deliver())
        except* OSError:
            # One end refused or reset the connection, and the other learns of it.
            self._reset = True

    def _close(self, _: asyncio.Task[None]) -> None:
        self.proxy.live.discard(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for end in (self._client, self._server):
            if self._reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
            else:
                # close() alone sends RST for FIN when input is unread.
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_WR)
            end.close()


@dataclass
class _Flow:
    """One direction of one connection: a reader, a writer, and the line between them."""

    connection: _Connection
    lane: Lane
    direction: Direction
    source: socket.socket
    target: socket.socket
    heard_at: float = 0.0

    def __post_init__(self) -> None:
        self._frames = _DataFrames(_HTTP2_PREFACE_BYTES if self.direction == "up" else 0)
        # What is under way, each with the loop time it is due at; an empty chunk is the FIN.
        self._line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_UNDER_WAY)

    async def receive(self) -> None:
        """Puts what the source sends on the line, the FIN last."""
        chunk = b"unread"
        while chunk:
            chunk = await self._read()
            now = asyncio.get_running_loop().time()
            frames = self._frames.count(chunk)
            if frames or not self.connection.proxy.idle_only_data_frames:
                self.heard_at = now
            self.lane.received_bytes += len(chunk)
            self.lane.data_frames += frames
            if self.direction in self.connection.dropping:
                await self._drop(chunk)
            else:
                await self._line.put((now + self.lane.delay_seconds, chunk))

    async def deliver(self) -> None:
        """Takes what is due from the line to the target, the FIN last."""
        chunk = b"undelivered"
        while chunk:
            due, chunk = await self._line.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            try:
                await self._write(chunk)
            except OSError:
                # The news that the target is gone travels the other way, where it may be lost.
                if ("down" if self.direction == "up" else "up") not in self.connection.dropping:
                    raise
                self.connection.dropping.add(self.direction)
                await self._drop(chunk)

    async def _read(self) -> bytes:
        await self.lane.flowing.wait()
        try:
            # What arrives just after a pause may still be read; it is held back before it is written.
            return await asyncio.get_running_loop().sock_recv(self.source, _CHUNK_BYTES)
        except OSError:
            if self.direction in self.connection.dropping:
                return b""
            raise

    async def _write(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while True:
            await self.lane.flowing.wait()
            # Not sock_sendall(): nothing may be awaited between a look at the faults and the write.
            if self.direction in self.connection.dropping:
                await self._drop(rest)
                return
            if not chunk:
                self.target.shutdown(socket.SHUT_WR)
            if not rest:
                return
            rest = rest[await self._write_some(rest) :]

    async def _write_some(self, rest: memoryview) -> int:
        rate = self.lane.bytes_per_second
        try:
            sent = self.target.send(rest[: max(1, rate // 20)] if rate else rest)
        except BlockingIOError:
            await _writable(self.target)
            return 0
        self.lane.delivered_bytes += sent
        if rate:
            await asyncio.sleep(sent / rate)
        return sent

    async def _drop(self, lost: bytes | memoryview) -> None:
        self.lane.dropped_bytes += len(lost)
        if not lost:
            # A lost FIN: this direction never ends by itself.
            await asyncio.Event().wait()


class _DataFrames:
    """Finds HTTP/2 DATA frames in a byte stream, by the frame headers alone."""

    def __init__(self, preface_bytes: int) -> None:
        self._skip = preface_bytes
        self._header = b""

    def count(self, chunk: bytes) -> int:
        found = 0
        while chunk:
            skipped = min(self._skip, len(chunk))
            wanted = skipped + _HTTP2_HEADER_BYTES - len(self._header)
            self._skip -= skipped
            self._header += chunk[skipped:wanted]
            chunk = chunk[wanted:]
            if len(self._header) == _HTTP2_HEADER_BYTES:
                found += self._header[3] == 0
                self._skip = int.from_bytes(self._header[:3])
                self._header = b""
        return found


def _tcp_socket() -> socket.socket:
    end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    end.setblocking(False)
    # Sockets that the listener accepts inherit these.
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BUFFER_BYTES)
    return end


async def _writable(end: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(end, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(end)
