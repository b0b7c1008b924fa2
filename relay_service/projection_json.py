"""JSON text that remembers what a parser forgets: keys that are repeated, and where each value stands."""

import json
import re
from collections import Counter
from collections.abc import Iterator

Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t\n\r]*")
_SCANNER = json.JSONDecoder()


class JsonObject(dict[str, object]):
    """An object of the text; of a key that is repeated the last value counts.

    Attributes:
        repeated: The keys that are there more than once.
    """

    repeated: tuple[str, ...] = ()


class JsonError(ValueError):
    """The text is not JSON.

    Attributes:
        line: Where the parser gave up, from 1; None when it cannot tell.
    """

    def __init__(self, reason: str, line: int | None) -> None:
        super().__init__(reason)
        self.line = line


def parse_json(text: str) -> object:
    """Return the value; its objects are `JsonObject`.

    Raises:
        JsonError: Not JSON.
    """
    if not text.strip():
        raise JsonError("is empty", 1)
    try:
        value: object = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise _broken(text, error) from None
    except RecursionError:
        raise JsonError("is nested too deeply", None) from None
    except ValueError:
        # Python refuses to convert numbers of more than some thousand digits.
        raise JsonError("holds a number that is too long", None) from None
    return value


class JsonLines:
    """Finds the line of a value. The text must have been parsed before."""

    def __init__(self, text: str) -> None:
        self._text = text
        # By the offset of the container, so that a thousand questions about one array cost one scan of it.
        self._members: dict[int, dict[str | int, tuple[int, int]]] = {}

    def line(self, path: Path) -> int:
        """Return the line, from 1, on which the value or its key stands.

        A path that leads nowhere, as one to a missing key does, answers with the line where the last value on
        the way begins.
        """
        shown = value = self._skip_space(0)
        for step in path:
            member = self._members_of(value).get(step)
            if member is None:
                break
            shown, value = member
        return self._text.count("\n", 0, shown) + 1

    def _members_of(self, offset: int) -> dict[str | int, tuple[int, int]]:
        """For each member of a container where it is shown and where its value begins."""
        members = self._members.get(offset)
        if members is None:
            scan = {"[": self._scan_array, "{": self._scan_object}.get(self._text[offset])
            members = {} if scan is None else dict(scan(offset))
            self._members[offset] = members
        return members

    def _scan_array(self, offset: int) -> Iterator[tuple[str | int, tuple[int, int]]]:
        at, index = self._skip_space(offset + 1), 0
        while self._text[at] != "]":
            yield index, (at, at)
            at, index = self._skip_comma(self._skip_value(at)), index + 1

    def _scan_object(self, offset: int) -> Iterator[tuple[str | int, tuple[int, int]]]:
        at = self._skip_space(offset + 1)
        while self._text[at] != "}":
            key, end = _SCANNER.raw_decode(self._text, at)
            value = self._skip_space(self._skip_space(end) + 1)
            yield key, (at, value)
            at = self._skip_comma(self._skip_value(value))

    def _skip_value(self, at: int) -> int:
        return _SCANNER.raw_decode(self._text, at)[1]

    def _skip_comma(self, at: int) -> int:
        at = self._skip_space(at)
        return self._skip_space(at + 1) if self._text[at] == "," else at

    def _skip_space(self, at: int) -> int:
        space = _SPACE.match(self._text, at)
        return at if space is None else space.end()


def _object(pairs: list[tuple[str, object]]) -> JsonObject:
    value = JsonObject(pairs)
    if len(value) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        value.repeated = tuple(key for key, count in counts.items() if count > 1)
    return value


def _broken(text: str, error: json.JSONDecodeError) -> JsonError:
    reason = f"is not JSON: {error.msg} (column {error.colno})"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
        reason += "; the text ends too early"
    return JsonError(reason, error.lineno)
