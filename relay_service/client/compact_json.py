"""JSON as the protocol signs it: compact, keys in the order given, spelled as JavaScript spells it."""

from collections.abc import Mapping, Sequence

import orjson


def dump_object(value: Mapping[str, object]) -> bytes:
    """Return the compact UTF-8 text, byte for byte what `JSON.stringify` gives for the same key order.

    Only `"`, the backslash and U+0000 to U+001F are escaped.

    Raises:
        ValueError: A text has a lone surrogate, which UTF-8 cannot spell.
    """
    return _dump(value)


def dump_array(value: Sequence[object]) -> bytes:
    """Return the compact UTF-8 text of an array, spelled as that of an object.

    Raises:
        ValueError: A text has a lone surrogate, which UTF-8 cannot spell.
    """
    return _dump(value)


def parse_object(document: bytes | str) -> dict[str, object] | None:
    """Return the object that the JSON text holds; None when it is not JSON or not an object.

    Nothing is raised, because a parser's exception carries the text that it parsed.
    """
    try:
        value = orjson.loads(document)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _dump(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Without its cause: that one may quote what it could not encode.
        raise ValueError("a text with a lone surrogate cannot be encoded") from None
