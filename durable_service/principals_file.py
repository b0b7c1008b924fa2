"""The principals as a JSON file: strict reading with precise complaints, and writing."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from durable_service.core.errors import DomainError
from durable_service.core.identifiers import checked_identifier
from durable_service.principals import EVERY_DRIVER, Principal, Principals, Role

MAXIMUM_FILE_BYTES: Final = 16_777_216

_KEY_BYTES: Final = 32
# Without a slash, which parts principal and worker in the name that a lease is held under.
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")
_SPIFFE_ID: Final = re.compile(r"spiffe://[a-z0-9._-]{1,255}(?:/[A-Za-z0-9._-]+)+")
_MEMBERS: Final = frozenset({"id", "tenant", "actor", "roles", "key", "spiffe_id", "drivers", "disabled"})


class PrincipalsError(ValueError):
    """The principals cannot be used. The text has one line for each problem."""


def load_principals(path: Path) -> Principals:
    """Reads a file.

    Raises:
        PrincipalsError: it cannot be read, or something in it is wrong.
    """
    return parse_principals(read_principals_file(path), str(path))


def read_principals_file(path: Path) -> bytes:
    """The content of the file.

    Raises:
        PrincipalsError: it cannot be read, or is too large to be one.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAXIMUM_FILE_BYTES + 1)
    except OSError as error:
        raise PrincipalsError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAXIMUM_FILE_BYTES:
        raise PrincipalsError(f"{path}: has more than {MAXIMUM_FILE_BYTES} bytes: is it the right file?")
    return content


def parse_principals(content: bytes, source: str = "principals") -> Principals:
    """Reads `{"principals": [...]}`.

    Raises:
        PrincipalsError: everything that is wrong, a line for each.
    """
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise PrincipalsError(f"{source}:{error.lineno}: is not JSON: {error.msg}") from None
    problems: list[str] = []
    rows = document.get("principals") if isinstance(document, dict) else None
    if not isinstance(rows, list) or set(document) != {"principals"}:
        raise PrincipalsError(f'{source}: must be an object with the one member "principals", a list')
    reader = _Reader(problems)
    principals = [reader.principal(f"principals[{place}]", row) for place, row in enumerate(rows)]
    if problems:
        raise PrincipalsError("\n".join(f"{source}: {problem}" for problem in problems))
    return Principals.of(each for each in principals if each is not None)


def format_principals(principals: Principals) -> bytes:
    """The content of a file with these principals, in the order of their ids."""
    rows = [_row(principal) for _, principal in sorted(principals.by_id.items())]
    return orjson.dumps({"principals": rows}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def encode_key(key: bytes) -> str:
    """A public key as it is written: unpadded base64url."""
    return base64.urlsafe_b64encode(key).rstrip(b"=").decode("ascii")


def decode_key(text: str) -> bytes | None:
    """The 32 bytes of a public key; None when the text is not one in its one spelling."""
    try:
        key = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return key if len(key) == _KEY_BYTES and encode_key(key) == text else None


class _Reader:
    """Reads principals and notes what is wrong with each."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._owners: dict[object, str] = {}

    def principal(self, path: str, row: object) -> Principal | None:
        before = len(self._problems)
        if not isinstance(row, dict):
            self._note(path, "must be an object")
            return None
        for name in sorted(set(row) - _MEMBERS):
            self._note(f"{path}.{name}", "is not a member of a principal")
        principal_id = self._id(path, row)
        principal = Principal(
            principal_id,
            self._identifier(f"{path}.tenant", row.get("tenant")),
            self._identifier(f"{path}.actor", row.get("actor")),
            self._roles(f"{path}.roles", row.get("roles")),
            self._key(f"{path}.key", row.get("key")),
            self._spiffe_id(f"{path}.spiffe_id", row.get("spiffe_id")),
            self._drivers(f"{path}.drivers", row.get("drivers", [])),
            self._flag(f"{path}.disabled", row.get("disabled", False)),
        )
        if len(self._problems) == before:
            self._check_whole(path, principal)
        return principal

    def _check_whole(self, path: str, principal: Principal) -> None:
        if principal.key is None and principal.spiffe_id is None:
            self._note(path, "needs a credential: key or spiffe_id")
        if principal.has(Role.WORKER) and principal.has(Role.APPROVER):
            self._note(f"{path}.roles", "cannot be worker and approver: a worker never decides an approval")
        if principal.has(Role.WORKER) and not principal.drivers:
            self._note(f"{path}.drivers", f'is missing: name what the worker executes, or "{EVERY_DRIVER}"')
        if principal.drivers and not principal.has(Role.WORKER):
            self._note(f"{path}.drivers", "is for workers alone")
        # A credential with two names would let a worker decide under the other one.
        for what, credential in (("key", principal.key), ("spiffe_id", principal.spiffe_id)):
            owner = self._owners.setdefault(credential, path) if credential is not None else path
            if owner != path:
                self._note(f"{path}.{what}", f"is the credential of {owner} as well")

    def _id(self, path: str, row: Mapping[str, Any]) -> str:
        text = row.get("id")
        if not isinstance(text, str) or not _ID.fullmatch(text):
            self._note(f"{path}.id", "must be 1 to 128 of the characters A-Z a-z 0-9 . _ @ : + -")
            return ""
        if self._owners.setdefault(("id", text), path) != path:
            self._note(f"{path}.id", f"is the id of {self._owners['id', text]} as well")
        return text

    def _identifier(self, path: str, text: object) -> str:
        if not isinstance(text, str):
            self._note(path, "must be a string")
            return ""
        try:
            return checked_identifier(text, path)
        except DomainError as error:
            self._note(path, error.violations[0].description)
            return ""

    def _roles(self, path: str, value: object) -> frozenset[Role]:
        names = self._strings(path, value)
        for name in sorted(names - set(Role)):
            self._note(path, f"{name!r} is not one of {', '.join(Role)}")
        if not names:
            self._note(path, f"must name at least one of {', '.join(Role)}")
        return frozenset(Role(name) for name in names & set(Role))

    def _key(self, path: str, value: object) -> bytes | None:
        if value is None:
            return None
        key = decode_key(value) if isinstance(value, str) else None
        if key is None:
            self._note(path, "must be an Ed25519 public key: 32 bytes as base64url, 43 characters")
        return key

    def _spiffe_id(self, path: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > 2_048 or not _SPIFFE_ID.fullmatch(value):
            self._note(path, "must be a SPIFFE id such as spiffe://example.org/worker")
            return None
        return value

    def _drivers(self, path: str, value: object) -> frozenset[str]:
        names = self._strings(path, value)
        for name in sorted(names):
            self._identifier(path, name)
        return frozenset(names)

    def _strings(self, path: str, value: object) -> set[str]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._note(path, "must be a list of strings")
            return set()
        return set(value)

    def _flag(self, path: str, value: object) -> bool:
        if not isinstance(value, bool):
            self._note(path, "must be true or false")
            return True
        return value

    def _note(self, path: str, problem: str) -> None:
        self._problems.append(f"{path}: {problem}")


def _row(principal: Principal) -> dict[str, object]:
    row: dict[str, object] = {
        "id": principal.id,
        "tenant": principal.tenant_id,
        "actor": principal.actor_id,
        "roles": sorted(principal.roles),
    }
    if principal.key is not None:
        row["key"] = encode_key(principal.key)
    if principal.spiffe_id is not None:
        row["spiffe_id"] = principal.spiffe_id
    if principal.drivers:
        row["drivers"] = sorted(principal.drivers)
    if principal.disabled:
        row["disabled"] = True
    return row
