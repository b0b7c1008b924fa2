"""The blob store: immutable bytes under derived keys.

Bytes are written before anything refers to them, so bytes without a reference are possible (`collection`
removes them) and a reference without bytes is not.
"""

import re
from collections.abc import AsyncIterator
from typing import Final, Protocol

from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.limits import BLOB_BYTES

_KEY: Final = re.compile(r"[0-9a-f]{64}")


class BlobStore(Protocol):
    """Bytes that never change. Every method refuses a key that is not 64 lower-case hex digits."""

    @property
    def durable(self) -> bool:
        """Whether what was put survives the loss of the process."""

    async def put(self, key: str, data: bytes) -> None:
        """Keeps bytes. The same bytes again are welcome, and make them young again for collection.

        Raises:
            DomainError: BLOB_COLLISION when the key holds other bytes, which stay; BLOB_CORRUPT when what it
                holds is damaged; ARTIFACT_TOO_LARGE; STORE_UNAVAILABLE.
        """

    async def get(self, key: str) -> bytes | None:
        """The bytes, exactly as they were put; None when there are none.

        Raises:
            DomainError: BLOB_CORRUPT, STORE_UNAVAILABLE.
        """

    async def delete(self, key: str) -> None:
        """Removes bytes; a missing key is none the worse for it."""

    def keys_before(self, put_before_ms: int) -> AsyncIterator[str]:
        """The keys of bytes that were put last before an instant, in no order."""

    async def delete_if_before(self, key: str, put_before_ms: int) -> bool:
        """Removes bytes unless they were put again since; atomic against `put`."""

    async def close(self) -> None:
        """Ends what the store holds open."""


def checked_key(key: str) -> str:
    """The key, when it is one.

    Raises:
        DomainError: FIELD_INVALID.
    """
    if not _KEY.fullmatch(key):
        raise invalid(Reason.FIELD_INVALID, "blobKey", "must be 64 lower-case hex digits")
    return key


def checked_data(data: bytes, limit_bytes: int = BLOB_BYTES) -> bytes:
    """The bytes, when they may be kept.

    Raises:
        DomainError: ARTIFACT_TOO_LARGE.
    """
    if len(data) > limit_bytes:
        raise DomainError(
            Reason.ARTIFACT_TOO_LARGE, "the artifact is too large", {"limit_bytes": str(limit_bytes)}
        )
    return data


def collision() -> DomainError:
    return DomainError(Reason.BLOB_COLLISION, "other bytes are kept under the key of this artifact")


def corrupt() -> DomainError:
    return DomainError(Reason.BLOB_CORRUPT, "the bytes of the artifact are not those that were put")
