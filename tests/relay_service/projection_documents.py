"""Documents in the form of a projection file, with the keys of the shared vectors."""

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from relay_service.core.identity import PublicIdentity, binding_bytes

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors/relay.json").read_bytes())

SITE: dict[str, str] = VECTORS["public"]["site"]
SITE2: dict[str, str] = VECTORS["public"]["site2"]
DEVICE: dict[str, str] = VECTORS["public"]["device"]
OTHER: dict[str, str] = VECTORS["public"]["other"]
# The key of SITE vouches for that of SITE2.
LINK: dict[str, Any] = VECTORS["succession"]["link"]

SITE_KEY_ID = "BYOLLM-NSAA-KD18-HKP3-1KSC-10QG-RK69"
SITE2_KEY_ID = "BYOLLM-J519-3K89-KJN3-R4FM-K64Y-4Q38"
DEVICE_KEY_ID = "BYOLLM-SRDB-C2RJ-2NT5-434J-KAAS-PFT0"

FIXTURE: dict[str, Any] = {
    "sites": [
        {"siteId": "demo", "site": SITE2, "succeeds": [LINK], "retiringUntil": 1_790_000_000_000},
        {"siteId": "wiki", "site": OTHER},
    ],
    "consents": [
        {"owner": "alice", "siteId": "demo", "paused": False},
        {"owner": "bob", "siteId": "demo", "paused": True},
        {"owner": "bob", "siteId": "wiki"},
    ],
    "devices": [{"owner": "alice", "runnerId": "laptop", "device": DEVICE, "revoked": False}],
    "rosters": [{"id": "team", "owner": "alice", "members": ["alice", "bob"]}],
    "revoked": [{"owner": "carol", "siteId": "gone"}],
}


def fixture(**parts: object) -> dict[str, Any]:
    """A copy of the fixture with some of its parts replaced."""
    return copy.deepcopy(FIXTURE) | parts


def device(runner_id: str, keys: object, owner: str = "alice") -> dict[str, object]:
    return {"owner": owner, "runnerId": runner_id, "device": keys}


def made_identity(number: int) -> PublicIdentity:
    """A valid identity, another one for each number."""
    public, secret = crypto_sign_seed_keypair(hashlib.sha256(str(number).encode()).digest())
    encryption = b"\x05" * 32
    return PublicIdentity(public, encryption, crypto_sign(binding_bytes(encryption), secret)[:64])
