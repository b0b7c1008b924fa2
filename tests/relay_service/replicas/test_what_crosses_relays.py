"""Every test of streams and calls runs with two relays as well, but for those that this table names."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parents[1]
PACKAGE = "tests.relay_service"

# Where the tests of a module run once more, with site and device at two relays.
ACROSS = {
    "streams.test_concurrent_calls": "test_streams_across_relays",
    "streams.test_grants": "test_streams_across_relays",
    "streams.test_identities": "test_streams_across_relays",
    "streams.test_inventory": "test_streams_across_relays",
    "streams.test_leases": "test_streams_across_relays",
    "streams.test_liveness": "test_streams_across_relays",
    "streams.test_notices": "test_streams_across_relays",
    "streams.test_payloads": "test_streams_across_relays",
    "streams.test_projection_changes": "test_streams_across_relays",
    "streams.test_slow_peers": "test_slow_peers_across_relays",
    "streams.test_ends": "test_failures_across_relays",
    "streams.test_killed_processes": "test_failures_across_relays",
    "streams.test_network": "test_failures_across_relays",
    "streams.test_store_failures": "test_failures_across_relays",
    "planes.test_signed_calls": "test_calls_across_relays",
    "planes.test_waiting_calls": "test_calls_across_relays",
    "planes.test_bad_items": "test_answers_across_relays",
    "planes.test_equal_answers": "test_answers_across_relays",
    "planes.test_twins": "test_answers_across_relays",
    "planes.test_admin_plane": "test_admin_plane_across_relays",
    "planes.test_pairing_decisions": "test_pairing_decisions_across_relays",
}
# What concerns one relay alone, and why.
ALONE = {
    "streams.test_bad_frames": "What is no frame is refused before anything is asked of the store.",
    "streams.test_hello": "The first three frames are between one party and the relay it has called.",
    "streams.test_hello_proofs": "A challenge is good for the one stream it was made for.",
    "streams.test_waiting_room": "It is the order in one relay's memory, without any stream.",
    "planes.test_bad_input": "What is not well-formed is refused before anything is asked of the store.",
    "planes.test_control_plane": "One operator calls one relay; test_decisions has what others make of it.",
    "planes.test_pairing": "It is the start of a pairing; test_pairing_across_relays has the rest.",
}
# Single tests that are left to one relay: their module here names what stands for them, or it is said here.
LEFT_OUT = {
    "test_a_relay_that_comes_back_has_forgotten_everything_and_says_so": (
        "test_outage.test_everything_is_there_afterwards"
    ),
    "test_a_killed_relay_comes_back_and_the_work_gets_done": "test_chaos.test_every_job_ends_exactly_once",
}


def named_tests(module: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}


def test_every_module_is_in_one_of_the_tables() -> None:
    found = {
        f"{folder}.{path.stem}"
        for folder in ("streams", "planes")
        for path in (TESTS / folder).glob("test_*.py")
    }
    assert found == ACROSS.keys() | ALONE.keys()
    assert not ACROSS.keys() & ALONE.keys()


@pytest.mark.parametrize("module", ACROSS)
def test_nothing_is_left_out_without_a_counterpart(module: str) -> None:
    here = importlib.import_module(f"{PACKAGE}.replicas.{ACROSS[module]}")
    alone: dict[str, str] = getattr(here, "ONE_RELAY_ALONE", {})
    left_out = {
        name
        for name, value in named_tests(importlib.import_module(f"{PACKAGE}.{module}")).items()
        if named_tests(here).get(name) is not value
    }
    assert left_out <= alone.keys() | LEFT_OUT.keys()
    assert all(callable(getattr(here, counterpart)) for counterpart in alone.values())


def test_what_stands_for_a_test_exists() -> None:
    for counterpart in LEFT_OUT.values():
        module, name = counterpart.split(".")
        assert callable(getattr(importlib.import_module(f"{PACKAGE}.replicas.{module}"), name))
