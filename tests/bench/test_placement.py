import os
import subprocess
import sys

import pytest

from bench.placement import on_load_core, on_server_core

two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)


def cores_of_a_child() -> set[int]:
    code = "import os; print(*os.sched_getaffinity(0))"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return set(map(int, printed.split()))


@two_cores
def test_server_and_load_are_kept_apart_and_all_is_as_before_afterwards() -> None:
    before = os.sched_getaffinity(0)
    first, second, *_others = sorted(before)
    with on_load_core() as apart:
        assert apart
        assert os.sched_getaffinity(0) == {second}
        with on_server_core():
            assert cores_of_a_child() == {first}
        assert os.sched_getaffinity(0) == {second}
    assert os.sched_getaffinity(0) == before


@two_cores
def test_an_error_inside_restores_the_cores_too() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(ZeroDivisionError), on_load_core():
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == before
