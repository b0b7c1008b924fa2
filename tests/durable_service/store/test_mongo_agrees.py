"""Random histories: the MongoDB store answers as the memory store does, also after it was opened again."""

import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import rule
from hypothesis.strategies import sampled_from

from tests.durable_service.store import test_stores_agree as sqlite
from tests.durable_service.store.mongo_fixture import (
    MISSING,
    MongoServer,
    fresh_database,
    require_mongo,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

if not MISSING:
    from durable_service.store.mongo import MongoTaskStore


class MongoAgreement(sqlite.Agreement):
    """What the SQLite store is in the other test, this one is here."""

    server: ClassVar[MongoServer]
    # Changes of one task that come together have one position.
    numbers_changes_alike = False

    def __init__(self) -> None:
        self.url = fresh_database(self.server)
        self.server.hold_clock(1_700_000_000_000)
        super().__init__()

    def opened(self) -> Any:
        store = self.loop.run_until_complete(MongoTaskStore.open(self.url, sqlite.LIMITS))
        store.listen(self.heard[1].append)
        return store

    @rule(ms=sampled_from([1, 40, 100, 1_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.server.hold_clock(self.now_ms)


class TestMongoAgreement(MongoAgreement.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(max_examples=4, stateful_step_count=25, deadline=None)

    @classmethod
    def setUpClass(cls) -> None:
        require_mongo()
        folder = tempfile.TemporaryDirectory(prefix="mongo-")
        cls.addClassCleanup(folder.cleanup)
        MongoAgreement.server = MongoServer(Path(folder.name), durable=False)
        MongoAgreement.server.start()
        cls.addClassCleanup(MongoAgreement.server.stop)
