"""Reading the objects of a projection file field by field; what is wrong is noted, and reading goes on."""

import difflib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from relay_service.core.identity import (
    PUBLIC_KEY_BYTES,
    SIGNATURE_BYTES,
    PublicIdentity,
    decode_base64url,
    verify_binding,
)
from relay_service.core.limits import IDENTIFIER_CHARACTERS, MAXIMUM_INSTANT_MS
from relay_service.projection_json import JsonObject, Path

# Stands for a value that has been complained about. No real identity equals it, and no real id is empty.
NO_IDENTITY = PublicIdentity(b"", b"", b"")

# Ids of callers travel in gRPC metadata, whose values are printable ASCII and lose outer spaces.
_CALLER = re.compile(rf"[!-~](?:[ -~]{{0,{IDENTIFIER_CHARACTERS - 2}}}[!-~])?")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ABSENT = object()


class Findings:
    """What is wrong with a file, as (path, reason), in the order in which it was found.

    Args:
        trusted: Identities whose binding has been verified before.
    """

    def __init__(self, trusted: frozenset[PublicIdentity] = frozenset()) -> None:
        self.all: list[tuple[Path, str]] = []
        self._trusted = trusted

    def note(self, path: Path, reason: str) -> None:
        self.all.append((path, reason))

    def concern(self, path: Path) -> bool:
        """Tell whether something was noted about this very value, not about a part of it."""
        return any(noted == path for noted, _ in self.all)

    def note_unbound(self, path: Path, identity: PublicIdentity) -> None:
        """Note an encryption key that its identity key has not signed."""
        if identity not in self._trusted and not verify_binding(identity):
            self.note((*path, "encryptionSig"), "the identity key has not signed this encryption key")


class FieldReader:
    """One object of the file.

    Every method reads one field and answers with a stand-in of the same type when it has noted something, so
    that the elements of a list keep their places.
    """

    def __init__(self, value: object, path: Path, keys: Sequence[str], findings: Findings) -> None:
        """Take an object that may have these keys and no others."""
        self._values: JsonObject | None = value if isinstance(value, JsonObject) else None
        self._path = path
        self._findings = findings
        if self._values is None:
            findings.note(path, f"must be an object, not {_type_name(value)}")
            return
        for key in self._values.repeated:
            findings.note((*path, key), "is there more than once")
        for key in self._values:
            if key not in keys:
                findings.note((*path, key), _unknown(key, keys))

    def objects(
        self, key: str, keys: Sequence[str], *, required: bool = False, most: int | None = None
    ) -> Iterator["FieldReader"]:
        """Return the objects of a list; absent means empty unless it is required."""
        elements = self._list(key, required=required)
        if most is not None and len(elements) > most:
            self.note(key, f"has {len(elements)} elements; at most {most} are allowed")
        for index, element in enumerate(elements):
            yield FieldReader(element, (*self._path, key, index), keys, self._findings)

    def name(self, key: str) -> str:
        """Return an id: 1 to 128 characters, none of them a control character."""
        return self._text(self._take(key), (*self._path, key), _name_fault)

    def caller(self, key: str) -> str:
        """Return the id under which somebody calls: a name that gRPC metadata can carry."""
        return self._text(self._take(key), (*self._path, key), _caller_fault)

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of ids that must be there."""
        return tuple(
            self._text(element, (*self._path, key, index), _name_fault)
            for index, element in enumerate(self._list(key, required=True))
        )

    def flag(self, key: str) -> bool:
        """Return true or false; absent means false."""
        value = self._take(key, required=False)
        if value is _ABSENT or isinstance(value, bool):
            return value is True
        self.note(key, f"must be true or false, not {_type_name(value)}")
        return False

    def number(self, key: str, least: int) -> int | None:
        """Return a whole number that fits a double exactly; None when absent."""
        value = self._take(key, required=False)
        if value is _ABSENT:
            return None
        # `type`: a bool is an int, but `true` is not a number.
        if type(value) is not int:
            self.note(key, f"must be a whole number, not {_type_name(value)}")
        elif least <= value <= MAXIMUM_INSTANT_MS:
            return value
        else:
            self.note(key, f"must be {least} to {MAXIMUM_INSTANT_MS}")
        return None

    def identity(self, key: str) -> PublicIdentity:
        """Return a public identity whose binding holds."""
        value = self._take(key)
        if value is _ABSENT:
            return NO_IDENTITY
        return read_identity(value, (*self._path, key), self._findings)

    def key_bytes(self, key: str, size: int) -> bytes:
        """Return the bytes of strict base64url text that must have this size."""
        value = self._take(key)
        if value is _ABSENT:
            return b""
        if not isinstance(value, str):
            self.note(key, f"must be text, not {_type_name(value)}")
            return b""
        try:
            decoded = decode_base64url(value)
        except ValueError:
            decoded = b""
        if len(decoded) != size:
            characters = -(-size * 4 // 3)
            self.note(key, f"must be {size} bytes as unpadded base64url ({characters} characters)")
            return b""
        return decoded

    def note(self, key: str, reason: str) -> None:
        """Note something about a field of this object."""
        self._findings.note((*self._path, key), reason)

    def _take(self, key: str, *, required: bool = True) -> object:
        if self._values is None:
            return _ABSENT
        value = self._values.get(key, _ABSENT)
        if value is _ABSENT and required:
            self.note(key, "is missing")
        return value

    def _list(self, key: str, *, required: bool) -> list[object]:
        value = self._take(key, required=required)
        if isinstance(value, list):
            return value
        if value is not _ABSENT:
            self.note(key, f"must be a list, not {_type_name(value)}")
        return []

    def _text(self, value: object, path: Path, fault_of: Callable[[str], str | None]) -> str:
        if value is _ABSENT:
            return ""
        if not isinstance(value, str):
            self._findings.note(path, f"must be text, not {_type_name(value)}")
            return ""
        fault = fault_of(value)
        if fault is None:
            return value
        self._findings.note(path, fault)
        return ""


def read_identity(value: object, path: Path, findings: Findings) -> PublicIdentity:
    """Read a public identity and check that its keys belong together."""
    fields = FieldReader(value, path, ("identity", "encryption", "encryptionSig"), findings)
    identity = PublicIdentity(
        identity=fields.key_bytes("identity", PUBLIC_KEY_BYTES),
        encryption=fields.key_bytes("encryption", PUBLIC_KEY_BYTES),
        encryption_signature=fields.key_bytes("encryptionSig", SIGNATURE_BYTES),
    )
    if not (identity.identity and identity.encryption and identity.encryption_signature):
        return NO_IDENTITY
    findings.note_unbound(path, identity)
    return identity


def show_path(path: Path) -> str:
    """Return the path as people write it: `devices[2].device.encryptionSig`."""
    return "".join(_show_step(step) for step in path).removeprefix(".")


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return a question that offers the word which was probably meant, or nothing."""
    near = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {_quoted(near[0])}?)" if near else ""


def _show_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    # A key that nobody expected may hold anything, line feeds included.
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{_quoted(step[:40])}]"


def _unknown(key: str, known: Sequence[str]) -> str:
    near = suggestion(key, known)
    return "is not a known field" + (near or f"; known here: {', '.join(known)}")


def _name_fault(text: str) -> str | None:
    if not 0 < len(text) <= IDENTIFIER_CHARACTERS:
        return f"must have 1 to {IDENTIFIER_CHARACTERS} characters, not {len(text)}"
    # The quick test first: nearly every id is plain ASCII.
    if not text.isprintable() and any(unicodedata.category(character) in {"Cc", "Cs"} for character in text):
        return "must not have control characters or broken Unicode"
    return None


def _caller_fault(text: str) -> str | None:
    if _CALLER.fullmatch(text):
        return None
    return _name_fault(text) or "must be printable ASCII without a space at either end"


def _quoted(text: str) -> str:
    return json.dumps(text)


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", str: "text", list: "a list", JsonObject: "an object"}
    return names.get(type(value), "a number")
