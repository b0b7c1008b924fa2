"""The sites that a device serves, each pinned by its identity key."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from relay_service.client.succession import ChainOutcome, SuccessionLink, verify_chain
from relay_service.client.wire import identity_from_proto, milliseconds_of
from relay_service.core.identity import PublicIdentity, verify_binding
from sealwork.relay.v1 import site_directory_pb2
from service_common.clocks import Clock

logger = logging.getLogger("sealwork.client")

# However long the relay says that an old key may still sign, this device believes it no longer than this.
_RETIREMENT_MS: Final = 604_800_000


class PinError(ValueError):
    """An identity that cannot be pinned."""


class SitePins:
    """Which keys may sign payloads for this device.

    A key id names one identity for ever. The relay's directory can take a site away, bring a known one back,
    and lead from a known key to its successor by a chain of signatures. It cannot introduce a stranger unless
    `trust_directory` says so: the relay is not trusted for keys.
    """

    def __init__(
        self,
        pins: Iterable[PublicIdentity] | Mapping[str, PublicIdentity],
        clock: Clock,
        *,
        trust_directory: bool = False,
    ) -> None:
        """Pin these.

        Args:
            pins: Identities of the sites.
            clock: Tells when a retired key has had its time.
            trust_directory: Pin every consistent identity that the relay's directory has.

        Raises:
            PinError: An identity does not verify.
        """
        self._clock = clock
        self._trust_directory = trust_directory
        self._known: dict[str, PublicIdentity] = {}
        self._active: set[str] = set()
        self._retired_at_ms: dict[str, int] = {}
        for identity in pins.values() if isinstance(pins, Mapping) else pins:
            if not verify_binding(identity):
                raise PinError(f"the identity {identity.key_id} has not signed its encryption key")
            self._pin(identity)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._active))

    def __len__(self) -> int:
        return len(self._active)

    def get(self, key_id: str) -> PublicIdentity | None:
        """Return the identity that may sign under this key id; None when there is none."""
        retired_at_ms = self._retired_at_ms.get(key_id)
        if retired_at_ms is not None and self._clock.now_ms() >= retired_at_ms:
            self._active.discard(key_id)
        return self._known[key_id] if key_id in self._active else None

    def adopt(self, directory: site_directory_pb2.SiteDirectory) -> frozenset[str]:
        """Take over a directory; returns the key ids that are pinned no longer.

        An empty directory is taken for a fault of its sender and changes nothing.
        """
        if not directory.sites:
            return frozenset()
        before = frozenset(self._active)
        named = {site.key_id for site in directory.sites}
        for site in directory.sites:
            self._adopt_site(site)
        for key_id in before - named:
            if key_id not in self._retired_at_ms:
                logger.warning("site %s is not consented to any more", key_id)
                self._active.discard(key_id)
        return before - self._active

    def _adopt_site(self, site: site_directory_pb2.ConsentedSite) -> None:
        identity = identity_from_proto(site.identity)
        if identity.key_id != site.key_id or not verify_binding(identity):
            logger.error("the directory's entry for %s does not verify; it is ignored", site.key_id)
            return
        known = self._known.get(site.key_id)
        if known is None:
            self._meet(identity, site)
        elif known != identity:
            logger.error("the directory has other keys for %s; the pinned ones stay", site.key_id)
        else:
            self._pin(identity)

    def _meet(self, identity: PublicIdentity, site: site_directory_pb2.ConsentedSite) -> None:
        links = [SuccessionLink(identity_from_proto(link.identity), link.signature) for link in site.succeeds]
        verdict = verify_chain(identity, links, self._known.__contains__)
        if verdict.outcome is ChainOutcome.BROKEN:
            logger.error("the succession to site %s is broken; it is not pinned", identity.key_id)
        elif verdict.predecessor is not None:
            logger.warning("site %s has the new key %s", verdict.predecessor, identity.key_id)
            self._pin(identity)
            self._retire(verdict.predecessor, milliseconds_of(site.retiring_until_time))
        elif self._trust_directory:
            logger.warning("site %s is pinned on the relay's word", identity.key_id)
            self._pin(identity)
        else:
            logger.warning("site %s is not pinned here; pin it to serve it", identity.key_id)

    def _pin(self, identity: PublicIdentity) -> None:
        self._known[identity.key_id] = identity
        self._active.add(identity.key_id)
        self._retired_at_ms.pop(identity.key_id, None)

    def _retire(self, key_id: str, until_ms: int) -> None:
        if key_id in self._active:
            self._retired_at_ms[key_id] = min(until_ms, self._clock.now_ms() + _RETIREMENT_MS)
