"""Unary calls that wait, and signed ones, with site and device at two relays."""

# ruff: noqa: F403
from tests.relay_service.planes.test_signed_calls import *
from tests.relay_service.planes.test_waiting_calls import *
