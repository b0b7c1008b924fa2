"""Every case has its row, and every test that the rows name is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "durable-cases.md"
SHORT = {"t/": "tests/durable_service/", "store/": "durable_service/store/contract/"}
# Rows of each section.
CASES = {
    "Tasks and effects": 11,
    "Records": 4,
    "Processes": 8,
    "Hosts": 13,
    "What was left open": 16,
    "Where a process may die": 14,
}


def sections() -> dict[str, list[str]]:
    """The last cells of the rows, by section."""
    found: dict[str, list[str]] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, *lines = section.splitlines()
        rows = [line.strip("|").rsplit("|", 1)[-1].strip() for line in lines if line.startswith("|")]
        # Without the head of the table and the line below it.
        found[title] = rows[2:]
    return found


def proofs() -> list[str]:
    return sorted({proof for rows in sections().values() for row in rows for proof in named(row)})


def named(cell: str) -> list[str]:
    names = re.findall(r"`([^`]+)`", cell)
    for short, whole in SHORT.items():
        names = [whole + name.removeprefix(short) if name.startswith(short) else name for name in names]
    return names


def test_every_case_has_its_row() -> None:
    assert {title: len(rows) for title, rows in sections().items()} == CASES
    assert all(named(row) for rows in sections().values() for row in rows)


@pytest.mark.parametrize("proof", proofs())
def test_a_named_test_exists(proof: str) -> None:
    path, *classes, name = proof.split("::")
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text()).body
    for wanted in classes:
        (body,) = (each.body for each in body if isinstance(each, ast.ClassDef) and each.name == wanted)
    functions = {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions
