"""How keys on the server are named, and how a lease leads to its site.

A site's keys carry a hash of its id and not the id, which may hold any character. The hash stands
in braces, so that all keys of a site share one hash slot of a cluster.
"""

import hashlib
from base64 import urlsafe_b64encode
from functools import lru_cache

DEFAULT_PREFIX = "sealwork:"

_HASH_BYTES = 15
_TAG_CHARACTERS = 20


@lru_cache(maxsize=16_384)
def site_tag(site_id: str) -> str:
    """The 20 characters that stand for a site in keys and in its leases' ids."""
    return _tag("site", site_id)


@lru_cache(maxsize=16_384)
def runner_tag(runner_id: str) -> str:
    return _tag("runner", runner_id)


def nonce_tag(caller: str, nonce: str) -> str:
    return _tag("nonce", f"{len(caller)}:{caller}{nonce}")


def lease_id(tag: str, secret: str) -> str:
    """The id of a lease: who holds it knows the site already, and the rest cannot be guessed."""
    return f"{tag}.{secret}"


def tag_of_lease(lease: str) -> str | None:
    """The tag of the site that a lease belongs to; None for what was never a lease of ours."""
    tag, point, secret = lease.partition(".")
    return tag if point and secret and len(tag) == _TAG_CHARACTERS else None


def check_prefix(prefix: str) -> str:
    """The prefix, when it can begin a key.

    Raises:
        ValueError: it has a brace, which would move the hash slot.
    """
    if "{" in prefix or "}" in prefix:
        raise ValueError("the prefix of the keys cannot have a brace")
    return prefix


def _tag(kind: str, name: str) -> str:
    digest = hashlib.sha256(f"{kind}\0{name}".encode()).digest()
    return urlsafe_b64encode(digest[:_HASH_BYTES]).decode("ascii")
