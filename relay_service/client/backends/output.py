"""The answer of a back end while it arrives: counted, bounded, never interpreted."""

from relay_service.client.backends.base import BackendFailure


class CappedOutput:
    """Bytes up to a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Take more of the answer.

        Raises:
            BackendFailure: It would be over the limit (`output-too-large`). What came before is dropped.
        """
        if len(self._data) + len(data) > self._limit:
            self._data.clear()
            raise BackendFailure("output-too-large")
        self._data += data

    def add_text(self, text: str) -> None:
        """Take more of the answer, counted as UTF-8 bytes. Lone surrogates become question marks."""
        self.add(text.encode("utf-8", "replace"))

    def text(self) -> str:
        """Return the answer; bytes that are not UTF-8 become U+FFFD.

        Raises:
            BackendFailure: The replacements made it longer than the limit (`output-too-large`).
        """
        text = self._data.decode("utf-8", "replace")
        if len(text) * 3 > self._limit and len(text.encode()) > self._limit:
            raise BackendFailure("output-too-large")
        return text
