"""Reading and writing the fields of a plaintext, strictly: shared by payloads and outcomes."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from relay_service.client.compact_json import dump_object


class PayloadError(ValueError):
    """A plaintext that breaks the rules. The text names the field and never quotes its content."""


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 code units: a character beyond U+FFFF counts as two."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def dump_text(fields: Mapping[str, object]) -> str:
    """Return the compact JSON text of the fields in their order.

    Raises:
        PayloadError: A text has a lone surrogate.
    """
    try:
        return dump_object(fields).decode("utf-8")
    except ValueError as error:
        raise PayloadError(str(error)) from None


def read_fields(
    value: object, name: str, *, required: AbstractSet[str], optional: AbstractSet[str] = frozenset()
) -> Mapping[str, object]:
    """Return the object's fields, once it is known that it has all it must and nothing it may not have.

    Raises:
        PayloadError: Not an object, or a key is missing or unknown.
    """
    match value:
        case dict() if required <= value.keys() <= required | optional:
            return value
        case _:
            raise PayloadError(f"{name} is not an object with the keys {', '.join(sorted(required))}")


def read_text(fields: Mapping[str, object], name: str) -> str:
    """Return a field that must be text.

    Raises:
        PayloadError: It is something else.
    """
    match fields[name]:
        case str() as text:
            return text
        case _:
            raise PayloadError(f"{name} is not text")


def read_optional_text(fields: Mapping[str, object], name: str) -> str | None:
    """Return a field that is text when it is there; an absent one is absent and not null.

    Raises:
        PayloadError: It is something else.
    """
    return read_text(fields, name) if name in fields else None


def read_flag(fields: Mapping[str, object], name: str) -> bool:
    """Return a field that must be true or false.

    Raises:
        PayloadError: It is something else.
    """
    match fields[name]:
        case bool() as flag:
            return flag
        case _:
            raise PayloadError(f"{name} is neither true nor false")
