"""A caller of the published relay, and the request signature that only that relay understands."""

from dataclasses import dataclass
from hashlib import sha256
from random import Random

from relay_service.client.keys import Keys
from relay_service.core.identity import encode_base64url

_DOMAIN = "byollm/v1/request"


@dataclass(frozen=True, slots=True)
class Party:
    """A site or a device: its keys, and the name the relay knows it by."""

    caller_id: str
    keys: Keys

    def request_signature(self, endpoint: str, issued_at_ms: int, body: bytes) -> str:
        """The signature over one call: endpoint, caller, time and the digest of the exact body bytes."""
        lines = (_DOMAIN, endpoint, self.caller_id, str(issued_at_ms), sha256(body).hexdigest())
        return encode_base64url(self.keys.signer.sign("\n".join(lines).encode()))


def new_party(caller_id: str, random: Random) -> Party:
    """A party with keys of its own. Its secrets protect nothing: they live for one run on loopback."""
    return Party(caller_id, Keys.generate(created_at_ms=1, random_bytes=random.randbytes))
