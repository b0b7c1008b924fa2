"""The contract lives outside the tests, and should fail as readably as they do."""

import pytest

