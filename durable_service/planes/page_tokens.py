"""Tokens of pages and watches: a position, bound to the caller and to what was asked.

They are not secret and not signed: whatever a token says, only what the caller may see is read with it.
"""

import base64
import hashlib
from typing import Final

import orjson
from google.protobuf.message import Message

from durable_service.caller import Caller
from durable_service.planes.refusals import page_token_invalid

_BINDING_BYTES: Final = 9
_LONGEST: Final = 4_096

Mark = list[int | str]


class PageTokens:
    """The tokens of one list, made for one caller and one question."""

    def __init__(self, name: str, caller: Caller, *question: Message | str) -> None:
        parts = [name, caller.tenant_id, caller.actor_id, *sorted(caller.roles)]
        digest = hashlib.sha256(orjson.dumps(parts))
        for part in question:
            data = part.encode() if isinstance(part, str) else part.SerializeToString(deterministic=True)
            digest.update(len(data).to_bytes(8))
            digest.update(data)
        self._binding = digest.digest()[:_BINDING_BYTES]

    def token(self, *mark: int | str) -> str:
        return _base64url(self._binding + orjson.dumps(mark))

    def mark(self, token: str, *kinds: type[int] | type[str]) -> Mark | None:
        """The position that a token stands for; None for the empty token.

        Raises:
            ServiceError: PAGE_TOKEN_INVALID.
        """
        if not token:
            return None
        values = self._values(token)
        if len(values) != len(kinds) or not all(map(_is, values, kinds)):
            raise page_token_invalid()
        return values

    def _values(self, token: str) -> Mark:
        if len(token) > _LONGEST:
            raise page_token_invalid()
        try:
            data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            values = orjson.loads(data[_BINDING_BYTES:])
        except ValueError:
            raise page_token_invalid() from None
        if data[:_BINDING_BYTES] != self._binding or not isinstance(values, list):
            raise page_token_invalid()
        return values


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
