import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from service_common.clocks import ManualClock

RequireServer = Callable[[str], str]


def test_no_settings_of_the_shell_reach_the_tests() -> None:
    assert [name for name in os.environ if name.startswith(("RELAY_", "DURABLE_", "SEALWORK_"))] == []


def test_the_clock_moves_only_when_told(manual_clock: "ManualClock") -> None:
    assert manual_clock.now_ms() == 1_700_000_000_000
    manual_clock.advance(250)
    assert manual_clock.now_ms() == 1_700_000_000_250


def test_a_unix_socket_can_be_bound_where_the_fixture_says(tmp_unix_socket: Path) -> None:
    assert len(os.fsencode(tmp_unix_socket)) <= 107
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_unix_socket))
        assert tmp_unix_socket.is_socket()


def test_a_server_that_is_there_is_found(
    require_server: RequireServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "redis-server").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert require_server("valkey") == str(tmp_path / "redis-server")


def test_a_server_that_is_missing_skips_at_home_and_fails_in_ci(
    require_server: RequireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="mongo is not installed: none of mongod is on the PATH"):
        require_server("mongo")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="mongo is not installed"):
        require_server("mongo")
