"""The private keys of a site or a device: generating, keeping and loading them."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from nacl.bindings import crypto_scalarmult_base

from relay_service.client.key_file import KeyFileError, StoredKeys, read_key_file, write_key_file
from relay_service.core.identity import PublicIdentity, binding_bytes, key_id
from service_common.signing import Signer

__all__ = ["KeyFileError", "Keys"]

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Keys:
    """An Ed25519 identity that signs and an X25519 key that receives.

    The text form shows the public half alone.

    Attributes:
        identity_seed: Ed25519 seed, 32 bytes.
        encryption_secret: X25519 secret key, 32 bytes.
        created_at_ms: When the keys were made, epoch milliseconds.
        signer: Signs as this identity.
        public: What others may know, with the identity's signature over the encryption key.
    """

    identity_seed: bytes = field(repr=False)
    encryption_secret: bytes = field(repr=False)
    created_at_ms: int
    signer: Signer = field(init=False, repr=False, compare=False)
    public: PublicIdentity = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.encryption_secret) != SECRET_BYTES:
            raise ValueError(f"an X25519 secret key has {SECRET_BYTES} bytes")
        signer = Signer(self.identity_seed)
        encryption = crypto_scalarmult_base(self.encryption_secret)
        signature = signer.sign(binding_bytes(encryption))
        object.__setattr__(self, "signer", signer)
        object.__setattr__(self, "public", PublicIdentity(signer.public_key, encryption, signature))

    @property
    def key_id(self) -> str:
        """Fingerprint of the identity key."""
        return key_id(self.signer.public_key)

    @classmethod
    def generate(
        cls, created_at_ms: int | None = None, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> Self:
        """Make new keys.

        Args:
            created_at_ms: Epoch milliseconds; the wall clock when absent.
            random_bytes: Source of that many unpredictable bytes.
        """
        return cls(
            identity_seed=random_bytes(SECRET_BYTES),
            encryption_secret=random_bytes(SECRET_BYTES),
            created_at_ms=time.time_ns() // 1_000_000 if created_at_ms is None else created_at_ms,
        )

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a key file.

        Raises:
            KeyFileError: Others than the owner may read or write the file, it is not a key file, or its
                public half is not that of its private keys.
            OSError: The file cannot be opened.
        """
        stored = read_key_file(Path(path))
        keys = cls(stored.identity_seed, stored.encryption_secret, stored.created_at_ms)
        # Ed25519 is deterministic, so the whole public half must come out as it was written.
        if keys.public != stored.public:
            raise KeyFileError(f"{path}: the public keys do not belong to the private keys")
        return keys

    def save(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the key file with mode 0600, all of it or nothing, and flush it to the disk.

        Args:
            path: Where to; its folder must exist.
            overwrite: Replace a file that is there, and so lose its identity for good.

        Raises:
            FileExistsError: There is a file and `overwrite` was not asked for.
            OSError: The file cannot be written.
        """
        stored = StoredKeys(self.identity_seed, self.encryption_secret, self.created_at_ms, self.public)
        write_key_file(Path(path), stored, overwrite=overwrite)
