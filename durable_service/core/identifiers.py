"""What may name a thing, and which integers enter a record."""

import unicodedata
from typing import Final

from durable_service.core.canonical_json import UNSAFE_NAMES
from durable_service.core.errors import Reason, invalid
from durable_service.core.limits import (
    IDENTIFIER_UTF16_UNITS,
    MAXIMUM_SAFE_INTEGER,
    NOTE_BYTES,
    REPEAT_ID_CHARACTERS,
)

# White space of ECMAScript that is not a control character and not in the category Zs.
_MORE_SPACES: Final = frozenset("\ufeff\u2028\u2029")


def checked_identifier(text: str, field: str, units: int = IDENTIFIER_UTF16_UNITS) -> str:
    """The text, unchanged: identifiers are compared as they are and never normalised.

    Raises:
        DomainError: INVALID_IDENTIFIER when it is empty or white space alone, longer than that many UTF-16
            units, holds a control character or an unpaired surrogate, or is an unsafe member name.
    """
    # Of printable ASCII there is little to look at, and nearly all identifiers are.
    plain = text.isascii() and text.isprintable() and text.strip() and len(text) <= units
    if not plain or text in UNSAFE_NAMES:
        _refuse_bad_identifier(text, field, units)
    return text


def checked_repeat_id(text: str, field: str) -> str:
    """An id that makes a call safe to repeat: 1 to 128 characters; raises as `checked_identifier`."""
    if len(text) > REPEAT_ID_CHARACTERS:
        raise invalid(Reason.INVALID_IDENTIFIER, field, f"is longer than {REPEAT_ID_CHARACTERS} characters")
    return checked_identifier(text, field)


def checked_integer(number: object, field: str, lowest: int = 0, highest: int = MAXIMUM_SAFE_INTEGER) -> int:
    """The number, when it is an integer within the bounds.

    Raises:
        DomainError: INVALID_INTEGER.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= highest:
        raise invalid(Reason.INVALID_INTEGER, field, f"must be an integer from {lowest} to {highest}")
    return number


def cut_note(text: str) -> str:
    """Free text for a record: at most 4,096 bytes of UTF-8, cut at a character; bad units are replaced."""
    encoded = text.encode("utf-8", "replace")
    return encoded[:NOTE_BYTES].decode("utf-8", "ignore")


def _refuse_bad_identifier(text: str, field: str, units: int) -> None:
    if all(char in _MORE_SPACES or unicodedata.category(char) == "Zs" for char in text):
        raise invalid(Reason.INVALID_IDENTIFIER, field, "must not be empty or white space alone")
    if text in UNSAFE_NAMES:
        raise invalid(Reason.INVALID_IDENTIFIER, field, "is a name that is not allowed")
    categories = {unicodedata.category(char) for char in text}
    if "Cc" in categories:
        raise invalid(Reason.INVALID_IDENTIFIER, field, "holds a control character")
    if "Cs" in categories:
        raise invalid(Reason.INVALID_IDENTIFIER, field, "holds an unpaired surrogate")
    if len(text.encode("utf-16-le")) // 2 > units:
        raise invalid(Reason.INVALID_IDENTIFIER, field, f"is longer than {units} UTF-16 code units")
