"""JSON as it travels: canonical bytes one way, plain values the other."""

from durable_service.core.canonical_json import JsonValue, canonical_json
from durable_service.core.canonical_json_reader import parse_json
from durable_service.core.errors import DomainError


def encode_json(value: object) -> bytes:
    """Return the canonical UTF-8 of a value made of None, bool, int, float, str, list, tuple and dict.

    Raises:
        ValueError: It holds anything else.
    """
    try:
        return canonical_json(value).encode()
    except DomainError as error:
        raise ValueError(f"not a JSON value: {error}") from None


def decode_json(text: bytes) -> JsonValue:
    """Return the value of UTF-8 JSON.

    Raises:
        ValueError: It is not strict JSON.
    """
    try:
        return parse_json(text)
    except DomainError as error:
        raise ValueError(f"not JSON: {error}") from None
