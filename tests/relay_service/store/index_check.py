"""Works the memory store's indexes out again from its jobs, and compares."""

from collections import defaultdict

from relay_service.core.lanes import lane_key
from relay_service.core.lapses import due_at_ms
from relay_service.core.model import JobState
from relay_service.store.memory import MemoryRoutingStore
from relay_service.store.memory_row import Row

UNSEALED = {JobState.AUTHORISING, JobState.AWAITING_PAYLOAD}
HELD = {*UNSEALED, JobState.READY, JobState.RUNNING}


def check_indexes(store: MemoryRoutingStore) -> None:
    rows = list(store._table.rows())
    _check_queues(store, rows)
    _check_shelves(store, rows)
    _check_claims(store, rows)
    _check_due(store, rows)
    _check_ages(store, rows)


def _check_queues(store: MemoryRoutingStore, rows: list[Row]) -> None:
    queues = store._table.queues
    queued = defaultdict(set)
    for row in rows:
        assert row.queue is queues._known[row.known.route]
        if row.known.state is JobState.QUEUED:
            assert row.lane is not None
            assert row.lane.key == lane_key(row.known)
            assert row.queue.lanes[row.lane.key] is row.lane
            assert (row.known.sequence, row) in row.lane.entries
            queued[row.lane].add(row)
        else:
            assert row.lane is None
    assert set(queues._known) == {row.known.route for row in rows}
    assert set(queues._active) == {row.known.route for row in rows if row.known.state is JobState.QUEUED}
    for queue in queues._known.values():
        mine = [row.known for row in rows if row.queue is queue]
        assert queue.jobs == len(mine)
        assert queue.unsealed == sum(job.state in UNSEALED for job in mine)
        assert (queue.turn > 0) is bool(queue.lanes)
        for lane in queue.lanes.values():
            assert lane.live == len(queued[lane]) > 0
            assert len(lane.entries) <= 3 * lane.live + 64


def _check_shelves(store: MemoryRoutingStore, rows: list[Row]) -> None:
    sites = store._table._sites
    assert set(sites) == {row.known.key.site_id for row in rows}
    for site_id, shelf in sites.items():
        mine = [row for row in rows if row.known.key.site_id == site_id]
        assert shelf.rows == {row.known.key.job_id: row for row in mine}
        assert set(shelf.finished) == {row for row in mine if row.known.state is JobState.DONE}
        sizes = [len(row.known.result.ciphertext) for row in mine if row.known.result is not None]
        assert shelf.result_bytes == sum(sizes)
        assert all(row.shelf is shelf for row in mine)


def _check_claims(store: MemoryRoutingStore, rows: list[Row]) -> None:
    table = store._table
    claims = {row.known.claim.lease_id: row for row in rows if row.known.claim is not None}
    assert table._leases == claims
    by_runner = defaultdict(set)
    for row in claims.values():
        assert row.known.claim is not None
        by_runner[row.known.claim.runner_id].add(row)
    assert set(table._runners) == set(by_runner)
    for runner, shelf in table._runners.items():
        assert set(shelf.held) == {row for row in by_runner[runner] if row.known.state in HELD}
        assert {row for found in shelf.rows.values() for row in found} == by_runner[runner]
    remembered = store._steps.claims._requests
    assert set(remembered) <= {lease for lease, row in claims.items() if row.known.state is not JobState.DONE}
    assert {lease for leases in store._steps.claims._leases.values() for lease in leases} == set(remembered)


def _check_due(store: MemoryRoutingStore, rows: list[Row]) -> None:
    due = store._table.due
    assert due._live == len(rows)
    assert len(due._entries) <= 3 * due._live + 64
    for row in rows:
        assert row.scheduled_at_ms is not None
        assert row.scheduled_at_ms <= due_at_ms(row.known)
        assert any(entry[0] == row.scheduled_at_ms and entry[2] is row for entry in due._entries)


def _check_ages(store: MemoryRoutingStore, rows: list[Row]) -> None:
    ages = store._table.ages
    queued = [row for row in rows if row.known.state is JobState.QUEUED]
    assert ages._live == len(queued)
    assert len(ages._entries) <= 3 * ages._live + 64
    entries = [entry[2] for entry in ages._entries]
    assert len(set(entries)) == len(entries)
    assert {row for row in rows if row.is_aged} == {row for row in entries if row in rows}
    assert set(queued) <= set(entries)
    assert ages.oldest_ms() == min((row.enqueued_at_ms for row in queued), default=None)
