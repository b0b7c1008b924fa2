"""Frames as a client writes them: what waits to be sent, in two lanes, and how it is packed.

Every plane's frame has the same layout: seq is field 1, ack_seq field 2, items field 3. An item is serialized
once, when it is queued, and a frame is put together from the bytes, so that its size is known exactly and
nothing is serialized twice.
"""

from collections import deque
from typing import Final

FRAME_BYTES: Final = 65_536

_SEQ_TAG: Final = b"\x08"
_ACK_SEQ_TAG: Final = b"\x10"
_ITEM_TAG: Final = b"\x1a"
# Two tags and two numbers of ten bytes, the longest there are.
_HEADER_BYTES: Final = 22
_SHORT: Final = tuple(bytes((value,)) for value in range(128))


class OutboundFrames:
    """What waits to be sent on one stream: control items first, the rest in order.

    Attributes:
        frame_bytes: Largest frame, in bytes; set before anything is queued.
    """

    __slots__ = ("_control", "_rest", "_seq", "frame_bytes")

    def __init__(self, frame_bytes: int = FRAME_BYTES) -> None:
        self.frame_bytes = frame_bytes
        self._control: deque[bytes] = deque()
        self._rest: deque[bytes] = deque()
        self._seq = 0

    def __len__(self) -> int:
        return len(self._control) + len(self._rest)

    def add(self, item: bytes, *, control: bool) -> None:
        """Queue a serialized item.

        Raises:
            ValueError: It cannot fit into any frame.
        """
        entry = _ITEM_TAG + _varint(len(item)) + item
        if len(entry) + _HEADER_BYTES > self.frame_bytes:
            raise ValueError(f"an item of {len(item)} bytes does not fit into a frame of {self.frame_bytes}")
        (self._control if control else self._rest).append(entry)

    def take(self, ack_seq: int) -> bytes:
        """Return the next frame with as many items as fit; empty when nothing waits.

        Args:
            ack_seq: Highest seq of the peer that has been handled.
        """
        if not self._control and not self._rest:
            return b""
        self._seq += 1
        parts = [_SEQ_TAG, _varint(self._seq)]
        if ack_seq:
            parts += (_ACK_SEQ_TAG, _varint(ack_seq))
        room = self.frame_bytes - _HEADER_BYTES
        for lane in (self._control, self._rest):
            while lane and len(lane[0]) <= room:
                room -= len(lane[0])
                parts.append(lane.popleft())
            if lane:
                # Nothing of a later lane may overtake what did not fit.
                break
        return b"".join(parts)

    def clear(self) -> None:
        """Forget what waits."""
        self._control.clear()
        self._rest.clear()


def _varint(value: int) -> bytes:
    if value < 128:
        return _SHORT[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
