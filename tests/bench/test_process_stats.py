import os

import pytest

from bench.process_stats import ServerMeter, cpu_seconds, parse_cpu_ticks, parse_rss_kib, rss_kib
from bench.variant import VariantFailedError

STAT = (
    "4711 (node (main) x) S 1 4711 4711 0 -1 4194304 13 0 0 0 250 75 9 9 20 0 11 0 9137 1290000 21000 "
    "18446744073709551615 1 1 0 0 0 0 0 4096 82435 0 0 0 17 0 0 0 0 0 0"
)
STATUS = "Name:\tnode\nVmPeak:\t 1290000 kB\nVmRSS:\t   84000 kB\nThreads:\t11\n"


def test_cpu_ticks_are_user_and_system_time_whatever_the_command_is_called() -> None:
    assert parse_cpu_ticks(STAT) == 325


def test_resident_memory() -> None:
    assert parse_rss_kib(STATUS) == 84000


def test_a_process_that_has_ended_holds_no_memory() -> None:
    assert parse_rss_kib("Name:\tnode\nState:\tZ (zombie)\n") == 0


def test_a_living_process_has_both() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert rss_kib(os.getpid()) > 1024


def test_a_meter_counts_from_where_it_started_and_adds_processes_up() -> None:
    meter = ServerMeter([os.getpid(), os.getppid()])
    assert meter.cpu_seconds() < cpu_seconds(os.getpid()) + cpu_seconds(os.getppid())
    assert meter.rss_kib() > rss_kib(os.getppid())


def test_a_process_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        cpu_seconds(2**22 + 1)


def test_a_server_that_has_ended_has_failed() -> None:
    with pytest.raises(VariantFailedError, match="has ended"):
        ServerMeter([os.getpid(), 2**22 + 1])
