import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from relay_service import projection
from relay_service.core.projection import Projection
from relay_service.projection import FileProjection, ProjectionSource
from relay_service.projection_file import ProjectionError
from service_common.clocks import ManualClock
from service_common.metrics import Metrics
from tests.relay_service.projection_documents import DEVICE, OTHER, SITE, device, fixture


class Heard:
    """Remembers the device ids and revisions of each change."""

    def __init__(self, source: ProjectionSource) -> None:
        self.changes: list[tuple[list[str], list[str]]] = []
        self.revisions: list[int] = []
        self.event = asyncio.Event()
        source.listen(self)

    def __call__(self, old: Projection, new: Projection) -> None:
        self.changes.append(
            ([each.runner_id for each in old.devices], [each.runner_id for each in new.devices])
        )
        self.revisions.append(new.revision)
        self.event.set()


def document(*runner_ids: str, revision: int | None = None, **parts: object) -> str:
    keys = dict(zip(("laptop", "phone"), (DEVICE, OTHER), strict=True))
    value = {"consents": [], "devices": [device(each, keys[each]) for each in runner_ids], **parts}
    return json.dumps(value if revision is None else value | {"revision": revision})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "projection.json"
    path.write_text(document("laptop"))
    return path


def state(source: ProjectionSource) -> tuple[bool, str | None]:
    return source.broken, source.problem


class Edited:
    """The file under an operator's editor."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def read(self) -> str:
        return self.path.read_text()

    def write_within_the_same_tick(self, text: str) -> None:
        status = self.path.stat()
        self.path.write_text(text)
        os.utime(self.path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def file(path: Path) -> Edited:
    return Edited(path)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def source(path: Path, manual_clock: ManualClock, metrics: Metrics) -> FileProjection:
    return FileProjection(path, manual_clock, metrics=metrics)


class TestStart:
    def test_a_file_is_in_force_from_the_start(self, source: FileProjection, metrics: Metrics) -> None:
        assert [each.runner_id for each in source.current.devices] == ["laptop"]
        assert state(source) == (False, None)
        assert source.current.revision == 1
        assert metrics.value("relay_projection_revision") == 1
        assert metrics.value("relay_projection_broken") == 0

    def test_its_revision_counts(self, path: Path, manual_clock: ManualClock) -> None:
        path.write_text(document(revision=41))

        assert FileProjection(path, manual_clock).current.revision == 41

    def test_a_broken_file_is_refused(self, path: Path, manual_clock: ManualClock) -> None:
        path.write_text('{"consents": [],\n"sites": 1}')

        with pytest.raises(ProjectionError) as caught:
            FileProjection(path, manual_clock)

        assert str(caught.value) == f"{path}:2: sites: must be a list, not a number"

    def test_a_missing_file_is_refused(self, tmp_path: Path, manual_clock: ManualClock) -> None:
        with pytest.raises(ProjectionError, match=r"none\.json: cannot be read: No such file or directory$"):
            FileProjection(tmp_path / "none.json", manual_clock)


class TestPolling:
    async def test_an_edit_is_in_force_and_heard_of(
        self, source: FileProjection, file: Edited, metrics: Metrics
    ) -> None:
        heard = Heard(source)
        file.write(document("laptop", "phone"))

        await source.poll()

        assert heard.changes == [(["laptop"], ["laptop", "phone"])]
        assert heard.revisions == [2]
        assert metrics.value("relay_projection_revision") == 2

    async def test_the_revision_of_the_file_counts_when_it_grows(
        self, source: FileProjection, file: Edited
    ) -> None:
        heard = Heard(source)
        for content in (document(revision=7), document("phone", revision=7), document(revision=3)):
            file.write(content)
            await source.poll()

        assert heard.revisions == [7, 8, 9]

    async def test_a_file_that_was_touched_is_no_change(self, source: FileProjection, file: Edited) -> None:
        heard = Heard(source)
        file.path.touch()
        await source.poll()
        # The same decisions in another spelling.
        file.write(json.dumps(json.loads(file.read()), indent=4))
        await source.poll()

        assert (heard.changes, source.current.revision) == ([], 1)

    async def test_a_raised_revision_alone_is_a_change(self, source: FileProjection, file: Edited) -> None:
        heard = Heard(source)
        file.write(document("laptop", revision=5))
        await source.poll()

        assert heard.revisions == [5]

    async def test_a_file_that_was_replaced_is_followed(self, source: FileProjection, file: Edited) -> None:
        heard = Heard(source)
        other = file.path.with_name("new.json")
        other.write_text(document("phone"))
        other.replace(file.path)

        await source.poll()

        assert heard.changes == [(["laptop"], ["phone"])]

    async def test_a_link_that_points_elsewhere_is_followed(
        self, tmp_path: Path, path: Path, manual_clock: ManualClock
    ) -> None:
        # How a mounted configuration is swapped.
        first, second = tmp_path / "first", tmp_path / "second"
        for folder, runner_id in ((first, "laptop"), (second, "phone")):
            folder.mkdir()
            (folder / "p.json").write_text(document(runner_id))
        link = tmp_path / "current"
        link.symlink_to(first)
        source = FileProjection(link / "p.json", manual_clock)
        heard = Heard(source)
        swapped = tmp_path / "swapped"
        swapped.symlink_to(second)
        swapped.replace(link)

        await source.poll()

        assert heard.changes == [(["laptop"], ["phone"])]

    async def test_a_second_write_within_one_tick_of_the_clock_is_seen(
        self, source: FileProjection, file: Edited
    ) -> None:
        await source.poll()
        file.write(document("laptop", "phone"))
        await source.poll()
        file.write_within_the_same_tick(file.read().replace("phone", "phine"))
        # As if the time of the last change stood still as well, which no call can bring about.
        source._stamp = projection._stamp_of(file.path)

        await source.poll()

        assert [each.runner_id for each in source.current.devices] == ["laptop", "phine"]


class TestBrokenFiles:
    async def test_a_broken_edit_keeps_the_last_good_one_and_recovers(
        self, source: FileProjection, file: Edited, metrics: Metrics
    ) -> None:
        heard = Heard(source)
        file.write(document("laptop", consents=[{"owner": "alice", "siteId": "none"}]))
        await source.poll()

        assert [each.runner_id for each in source.current.devices] == ["laptop"]
        assert state(source) == (
            True,
            f"{file.path}:1: consents[0].siteId: is the id of no site in this file",
        )
        assert metrics.value("relay_projection_broken") == 1
        assert heard.changes == []

        file.write(document("laptop", "phone"))
        await source.poll()

        assert state(source) == (False, None)
        assert metrics.value("relay_projection_broken") == 0
        assert heard.changes == [(["laptop"], ["laptop", "phone"])]

    async def test_an_edit_that_is_taken_back_recovers_without_a_change(
        self, source: FileProjection, file: Edited
    ) -> None:
        heard = Heard(source)
        good = file.read()
        file.write("{")
        await source.poll()
        file.write(good)
        await source.poll()

        assert (source.broken, heard.changes) == (False, [])

    async def test_a_file_that_is_being_written(self, source: FileProjection, file: Edited) -> None:
        heard = Heard(source)
        whole = document("laptop", "phone")
        # Truncated, then growing.
        for written in (0, 100, 300):
            file.write(whole[:written])
            await source.poll()
            expected = "the text ends too early" if written else f"{file.path}:1: is empty"
            assert expected in (source.problem or "")
        file.write(whole)
        await source.poll()

        assert not source.broken
        assert heard.changes == [(["laptop"], ["laptop", "phone"])]

    async def test_a_file_that_is_removed(self, source: FileProjection, file: Edited) -> None:
        heard = Heard(source)
        file.path.unlink()
        await source.poll()
        await source.poll()

        assert source.problem == f"{file.path}: cannot be read: No such file or directory"
        assert [each.runner_id for each in source.current.devices] == ["laptop"]

        file.write(document("phone"))
        await source.poll()

        assert not source.broken
        assert heard.changes == [(["laptop"], ["phone"])]

    async def test_a_file_that_could_not_be_read_is_tried_again_though_it_did_not_change(
        self, source: FileProjection, file: Edited, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.write(document("phone"))

        def exhausted(*_: object) -> int:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr("relay_service.projection_file.os.open", exhausted)
            for _ in range(3):
                await source.poll()
            assert source.problem == f"{file.path}: cannot be read: Too many open files"
        await source.poll()

        assert not source.broken
        assert [each.runner_id for each in source.current.devices] == ["phone"]

    async def test_each_broken_content_is_logged_once(self, source: FileProjection, file: Edited) -> None:
        good = file.read()
        with capture_logs() as events:
            for content in ("", "", "[]", good, "[]"):
                file.write(content)
                await source.poll()
                await source.poll()

        assert [(event["log_level"], event["event"], event.get("problem")) for event in events] == [
            ("error", "projection_broken", f"{file.path}:1: is empty"),
            ("error", "projection_broken", f"{file.path}:1: must be an object, not a list"),
            ("info", "projection_mended", None),
            ("error", "projection_broken", f"{file.path}:1: must be an object, not a list"),
        ]

    async def test_what_was_put_in_force_by_hand_stands_until_the_file_changes(
        self, source: FileProjection, file: Edited
    ) -> None:
        source.replace(Projection())
        await source.poll()
        await source.poll()
        assert not source.current.devices

        file.write(document("phone"))
        await source.poll()
        assert [each.runner_id for each in source.current.devices] == ["phone"]
        assert source.current.revision == 3


class TestWatching:
    @pytest.fixture
    async def watch(self, source: FileProjection) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(source.watch())
        yield task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def test_an_edit_is_in_force_half_a_second_later(
        self, source: FileProjection, file: Edited, manual_clock: ManualClock, watch: asyncio.Task[None]
    ) -> None:
        heard = Heard(source)
        await manual_clock.advance_async(0)
        file.write(document("phone"))

        await manual_clock.advance_async(499)
        assert heard.changes == []
        await manual_clock.advance_async(1)
        async with asyncio.timeout(30):
            await heard.event.wait()

        assert heard.changes == [(["laptop"], ["phone"])]

    async def test_it_survives_what_nobody_expected(
        self,
        source: FileProjection,
        file: Edited,
        manual_clock: ManualClock,
        watch: asyncio.Task[None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        async def fail() -> None:
            raise RuntimeError

        heard = Heard(source)
        await manual_clock.advance_async(0)
        file.write(document("phone"))
        with monkeypatch.context() as patched, capture_logs() as events:
            patched.setattr(source, "poll", fail)
            await manual_clock.advance_async(1_000)
        assert [event["event"] for event in events] == ["projection_watch_failed"] * 2

        await manual_clock.advance_async(500)
        async with asyncio.timeout(30):
            await heard.event.wait()

        assert heard.changes == [(["laptop"], ["phone"])]


async def test_a_whole_fixture_follows_a_file(tmp_path: Path, manual_clock: ManualClock) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(fixture()))
    source = FileProjection(path, manual_clock)
    assert source.current.may_route("alice", "demo")

    paused = [{"owner": "alice", "siteId": "demo", "paused": True}]
    path.write_text(json.dumps(fixture(consents=paused, sites=[{"siteId": "demo", "site": SITE}])))
    await source.poll()

    assert not source.current.may_route("alice", "demo")
