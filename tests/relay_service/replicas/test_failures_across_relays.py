"""Ends of streams, bad networks, killed devices and a store that fails, with site and device apart."""

# ruff: noqa: F403
from tests.relay_service.streams.test_ends import *
from tests.relay_service.streams.test_killed_processes import *
from tests.relay_service.streams.test_network import *
from tests.relay_service.streams.test_store_failures import *

# A relay that goes and comes back without its store is alone by nature; with a store that outlives it, these
# are the tests of outages, failovers and killed relays beside this one.
del globals()["test_a_relay_that_comes_back_has_forgotten_everything_and_says_so"]
del globals()["test_a_killed_relay_comes_back_and_the_work_gets_done"]
