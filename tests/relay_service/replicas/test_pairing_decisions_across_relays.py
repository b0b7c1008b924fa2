"""What becomes of a pairing that waits at one relay and is decided at the other."""

# ruff: noqa: F403
from tests.relay_service.planes.test_pairing_decisions import *
