"""Clients that do not read what they are sent, with site and device at two relays."""

# ruff: noqa: F403
from tests.relay_service.streams.test_slow_peers import *
