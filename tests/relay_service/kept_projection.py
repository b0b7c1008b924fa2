"""A relay as far as its projection is concerned, and a projection to begin with."""

import hashlib
import json
from pathlib import Path
from typing import Any

from relay_service import projection_edits as edits
from relay_service.core.projection import Consent, ProjectedSite, Projection
from relay_service.projection import FileProjection, ProjectionSource
from relay_service.projection_exchange import ProjectionExchange
from relay_service.projection_file import format_projection
from relay_service.projection_keeper import (
    ProjectionKeeper,
)
from relay_service.store.memory import MemoryRoutingStore
from service_common.background import Background
from service_common.clocks import ManualClock
from tests.relay_service.projection_documents import made_identity

SITE = ProjectedSite("demo", made_identity(1))
BASE = Projection(sites=(SITE,), consents=(Consent("alice", "demo"),), revision=1)
DEVICE = made_identity(2)


def grant(owner: str) -> Any:
    return lambda current: edits.grant_consent(current, owner, "demo")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write(path: Path, projection: Projection) -> None:
    path.write_text(format_projection(projection))


def write_text(path: Path, text: str) -> None:
    path.write_text(text)


def content(path: Path) -> bytes:
    return path.read_bytes()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def lines(path: Path) -> list[dict[str, Any]]:
    trail = path.with_name(path.name + ".audit.jsonl")
    return [json.loads(line) for line in trail.read_text().splitlines()]


class Relay:
    """A relay as far as its projection is concerned."""

    def __init__(self, store: MemoryRoutingStore, path: Path | None, clock: ManualClock) -> None:
        self.source = ProjectionSource() if path is None else FileProjection(path, clock)
        self.background = Background()
        self.exchange = ProjectionExchange(store, self.source, self.background)
        self.keeper = ProjectionKeeper(self.source, self.exchange)

    async def start(self) -> "Relay":
        await self.keeper.begin()
        return self

    async def stop(self) -> None:
        self.exchange.end()
        await self.background.settle()

    def owners(self) -> list[str]:
        return [consent.owner for consent in self.source.current.consents]
