"""Nobody can tell another's job from one that never was, with site and device at two relays."""

# ruff: noqa: F403
from tests.relay_service.planes.test_bad_items import *
from tests.relay_service.planes.test_equal_answers import *
from tests.relay_service.planes.test_twins import *
