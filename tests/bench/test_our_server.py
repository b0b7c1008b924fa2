import os
from pathlib import Path
from random import Random

import pytest

from bench.our_relay.server import OurServer, announced_address, projection_of
from bench.peer_relay.party import new_party
from bench.variant import VariantUnavailableError


def test_the_projection_has_a_consent_for_every_device_s_owner() -> None:
    site, device = new_party("site", Random(1)), new_party("runner", Random(2))
    projection = projection_of([site], [("alice", "site", device)])
    assert [(entry.site_id, entry.identity) for entry in projection.sites] == [("site", site.keys.public)]
    assert [(entry.owner, entry.site_id, entry.paused) for entry in projection.consents] == [
        ("alice", "site", False)
    ]
    (entry,) = projection.devices
    assert (entry.owner, entry.runner_id, entry.identity) == ("alice", "runner", device.keys.public)


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ('{"event":"relay is serving","address":"127.0.0.1:40001","port":40001}', "127.0.0.1:40001"),
        ('{"event":"metrics are served","port":9433}', ""),
        ('["relay is serving"]', ""),
        ("Traceback (most recent call last):", ""),
        ("", ""),
    ],
)
def test_the_address_is_read_from_the_log(line: str, address: str) -> None:
    assert announced_address(line) == address


@pytest.mark.process
async def test_a_relay_is_started_and_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    # A setting of the person who runs the bench; the relay would refuse it.
    monkeypatch.setenv("RELAY_LEASE_MS", "no number")
    site, device = new_party("site", Random(1)), new_party("runner", Random(2))
    server = OurServer()
    try:
        await server.start(projection_of([site], [("alice", "site", device)]))
        assert server.address.startswith("127.0.0.1:")
        meter = server.meter()
        assert meter.rss_kib() > 1_000
        (pid,) = meter.pids
    finally:
        await server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.process
async def test_a_relay_that_does_not_start_is_unavailable_and_says_why() -> None:
    server = OurServer("--no-such-option")
    try:
        with pytest.raises(VariantUnavailableError, match=r"ended with status 2: .*no-such-option"):
            await server.start(projection_of([], []))
    finally:
        await server.stop()


def files_under(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


@pytest.mark.process
async def test_nothing_is_left_behind_in_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = OurServer()
    try:
        await server.start(projection_of([], []))
        # The relay may keep files of its own beside it.
        assert "projection.json" in files_under(tmp_path)
    finally:
        await server.stop()
    assert files_under(tmp_path) == []
