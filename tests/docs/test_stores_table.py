"""The table of guarantees names what the tests prove, and nothing else."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_the_table_names_what_the_tests_prove() -> None:
    script = REPOSITORY / "tests" / "durable_service" / "guarantees.py"
    answer = subprocess.run(
        [sys.executable, script, "--check"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout[-2_000:] + answer.stderr[-2_000:]
