"""The sites that a device serves, each pinned by its identity key."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from relay_service.client.pin_file import LearnedPins, PinError, PinFile
from relay_service.client.succession import ChainOutcome, SuccessionLink, Verdict, verify_chain
from relay_service.client.wire import identity_from_proto, milliseconds_of
from relay_service.core.identity import PublicIdentity, verify_binding
from sealwork.relay.v1 import site_directory_pb2
from service_common.clocks import Clock

__all__ = ["Announce", "PinError", "SitePins"]

logger = logging.getLogger("sealwork.client")

Announce = Callable[[str, Mapping[str, str]], None]
"""Tells the owner of an event: what happened, and to which keys."""

# However long the relay says that an old key may still sign, this device believes it no longer than this.
_RETIREMENT_MS: Final = 604_800_000
# A relay that makes up sites fills neither this machine's memory nor its owner's log.
_MOST_SITES: Final = 4_096
_MOST_REFUSALS: Final = 256


class SitePins:
    """Which keys may sign payloads for this device.

    A key id names one identity for ever. The relay's directory can take a site away, bring a known one back,
    and lead from a known key to its successor by a chain of signatures. It cannot introduce a stranger unless
    `trust_directory` says so, and it cannot bring back a key that has had its time: the relay is not trusted
    for keys.
    """

    def __init__(
        self,
        pins: Iterable[PublicIdentity] | Mapping[str, PublicIdentity],
        clock: Clock,
        *,
        trust_directory: bool = False,
        file: PinFile | None = None,
        announce: Announce | None = None,
    ) -> None:
        """Pin these.

        Args:
            pins: Identities of the sites.
            clock: Tells when a retired key has had its time.
            trust_directory: Pin every consistent identity that the relay's directory has.
            file: Where what is learned outlives the process.
            announce: Told of every change, and once of everything that was refused.

        Raises:
            PinError: An identity does not verify.
        """
        self._clock = clock
        self._trust_directory = trust_directory
        self._file = file
        self._announce = announce
        self._known: dict[str, PublicIdentity] = {}
        self._active: set[str] = set()
        self._learned = LearnedPins()
        self._refused: set[tuple[str, str]] = set()
        for identity in pins.values() if isinstance(pins, Mapping) else pins:
            if not verify_binding(identity):
                raise PinError(f"the identity {identity.key_id} has not signed its encryption key")
            self._pin(identity)
        self._given = frozenset(self._known)

    def __iter__(self) -> Iterator[str]:
        return iter([key_id for key_id in sorted(self._active) if self.get(key_id) is not None])

    def __len__(self) -> int:
        return len(self._active)

    def open(self) -> None:
        """Take over what an earlier process has learned.

        A successor counts only while the pin that led to it is still given: who takes a pin away means the
        whole site.

        Raises:
            PinError: It cannot be read.
        """
        if self._file is None:
            return
        self._learned = self._file.load()
        for key_id, identity in self._learned.identities.items():
            root = self._learned.roots[key_id]
            if root in self._given or (root is None and self._trust_directory):
                self._pin(identity)

    def get(self, key_id: str) -> PublicIdentity | None:
        """Return the identity that may sign under this key id; None when there is none."""
        retired_at_ms = self._learned.retired_at_ms.get(key_id)
        if retired_at_ms is not None and self._clock.now_ms() >= retired_at_ms:
            self._active.discard(key_id)
        return self._known[key_id] if key_id in self._active else None

    def served(self, key_id: str) -> None:
        """Note that work is done for a site; the owner is told of the first time."""
        if key_id not in self._learned.served:
            self._learned.served.add(key_id)
            self._tell("first-job", site=key_id)
            self._save()

    def adopt(self, directory: site_directory_pb2.SiteDirectory) -> frozenset[str]:
        """Take over a directory; returns the key ids that are pinned no longer.

        An empty directory is taken for a fault of its sender and changes nothing.
        """
        if not directory.sites:
            return frozenset()
        before = frozenset(self._active)
        kept = {site.key_id for site in directory.sites}
        for site in directory.sites:
            kept |= self._adopt_site(site)
        for key_id in before - kept:
            if key_id not in self._learned.retired_at_ms:
                logger.warning("site %s is not consented to any more", key_id)
                self._active.discard(key_id)
                self._tell("site-left", site=key_id)
        return before - self._active

    def _adopt_site(self, site: site_directory_pb2.ConsentedSite) -> frozenset[str]:
        """Take over one entry; returns the key ids that must not be taken for absent because of it."""
        identity = identity_from_proto(site.identity)
        if identity.key_id != site.key_id or not verify_binding(identity):
            self._refuse("entry-refused", site.key_id, "the directory's entry for %s does not verify")
            return frozenset()
        known = self._known.get(site.key_id)
        if known is None:
            return self._meet(identity, site)
        if known != identity:
            self._refuse("keys-refused", site.key_id, "the directory has other keys for %s; the pinned stay")
        elif site.key_id in self._learned.retired_at_ms:
            self._refuse("retired-refused", site.key_id, "the directory brings back the old key %s")
        else:
            self._active.add(site.key_id)
            self._shorten_retirement(site)
        return frozenset()

    def _meet(self, identity: PublicIdentity, site: site_directory_pb2.ConsentedSite) -> frozenset[str]:
        links = [SuccessionLink(identity_from_proto(link.identity), link.signature) for link in site.succeeds]
        verdict = verify_chain(identity, links, self._known.__contains__)
        if verdict.outcome is ChainOutcome.BROKEN:
            self._refuse("succession-refused", identity.key_id, "the succession to site %s is broken")
            # Whoever breaks a chain must not get the pinned key out of the way by that.
            return frozenset(link.identity.key_id for link in links)
        if verdict.predecessor in self._learned.retired_at_ms:
            # It has a successor already: who has got hold of an old key must not lead to another one by it.
            self._refuse(
                "succession-refused", identity.key_id, "site %s succeeds a key that has another heir"
            )
        elif verdict.outcome is ChainOutcome.ADOPTED:
            self._succeed(identity, links, verdict, milliseconds_of(site.retiring_until_time))
        elif self._trust_directory and len(self._known) < _MOST_SITES:
            logger.warning("site %s is pinned on the relay's word", identity.key_id)
            self._learn(identity, None)
            self._tell("site-pinned", site=identity.key_id)
            self._save()
        else:
            self._refuse("site-unknown", identity.key_id, "site %s is not pinned here; pin it to serve it")
        return frozenset()

    def _succeed(
        self, identity: PublicIdentity, links: list[SuccessionLink], verdict: Verdict, until_ms: int
    ) -> None:
        predecessor, *between = verdict.path[:-1]
        logger.warning("site %s has the new key %s", predecessor, identity.key_id)
        root = predecessor if predecessor in self._given else self._learned.roots.get(predecessor)
        retired_at_ms = min(until_ms, self._clock.now_ms() + _RETIREMENT_MS)
        # Keys in between were vouched for, too, and may still be named by jobs of the window.
        for link in links[len(links) - len(between) :] if between else ():
            self._learn(link.identity, root)
            self._learned.retired_at_ms[link.identity.key_id] = retired_at_ms
        if predecessor in self._active:
            self._learned.retired_at_ms.setdefault(predecessor, retired_at_ms)
        self._learn(identity, root)
        self._tell("site-adopted", site=predecessor, successor=identity.key_id)
        self._save()

    def _shorten_retirement(self, site: site_directory_pb2.ConsentedSite) -> None:
        """The window of an old key may be cut short, and never made longer."""
        until_ms, retired = milliseconds_of(site.retiring_until_time), self._learned.retired_at_ms
        shorter = [
            key_id
            for link in site.succeeds
            if until_ms < retired.get(key_id := identity_from_proto(link.identity).key_id, 0)
        ]
        if shorter:
            retired.update(dict.fromkeys(shorter, until_ms))
            self._save()

    def _learn(self, identity: PublicIdentity, root: str | None) -> None:
        self._learned.identities[identity.key_id] = identity
        self._learned.roots[identity.key_id] = root
        self._pin(identity)

    def _pin(self, identity: PublicIdentity) -> None:
        self._known[identity.key_id] = identity
        self._active.add(identity.key_id)

    def _save(self) -> None:
        # On the event loop: it happens as often as a site has a new key.
        if self._file is not None:
            try:
                self._file.save(self._learned)
            except PinError as error:
                logger.error("what was learned about sites could not be kept: %s", error)

    def _refuse(self, event: str, key_id: str, text: str) -> None:
        # A directory comes again and again; its owner hears of a fault in it once.
        if (event, key_id) not in self._refused and len(self._refused) < _MOST_REFUSALS:
            self._refused.add((event, key_id))
            logger.error(text, key_id)
            self._tell(event, site=key_id)

    def _tell(self, event: str, **keys: str) -> None:
        if self._announce is not None:
            self._announce(event, keys)
