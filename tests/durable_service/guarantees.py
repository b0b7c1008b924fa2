"""Writes the table of guarantees in docs/stores.md from a run of the tests that prove them.

    python tests/durable_service/guarantees.py            runs the tests and writes the table
    python tests/durable_service/guarantees.py --check    only compares it with the tests that there are

A case of the contract of stores is a line for every store whose suite has it. Any other test becomes a line
by the marker `guarantee(store, sentence)`; in both texts, names in braces stand for the test's parameters.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = REPOSITORY / "docs" / "stores.md"
TESTS: Final = (
    "tests/durable_service/store",
    "tests/durable_service/crash",
    "tests/durable_service/replicas",
    "tests/durable_service/server",
)
STORES: Final = {"memory": "Memory", "sqlite": "SQLite", "postgresql": "PostgreSQL", "mongodb": "MongoDB"}
BEGIN: Final = "<!-- written by `make guarantees` -->"
END: Final = "<!-- end of what is written -->"

_SUITE: Final = re.compile(r"Test(Memory|Sqlite|Postgres|Mongo)TaskStore")
_KINDS: Final = {"Memory": "memory", "Sqlite": "sqlite", "Postgres": "postgresql", "Mongo": "mongodb"}
_BEYOND: Final = "Beyond the contract: losses, races, several processes"
_PASSED, _ABSENT = "✓", "–"


@dataclass(frozen=True, slots=True)
class Promise:
    """What one test proves of one store.

    Attributes:
        place: of the sentence in the table.
    """

    chapter: str
    sentence: str
    store: str
    place: tuple[int, int] = (0, 0)


@dataclass(slots=True, eq=False)
class Findings:
    """A plugin of pytest that notes which tests prove what, and how they end."""

    promises: dict[str, Promise] = field(default_factory=dict)
    kept: set[Promise] = field(default_factory=set)
    broken: set[Promise] = field(default_factory=set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: promise for item in items if (promise := promise_of(item)) is not None}
        self.promises.update(found)
        items[:] = [item for item in items if item.nodeid in found]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        promise = self.promises.get(report.nodeid)
        if promise is None:
            return
        if report.failed:
            self.broken.add(promise)
        elif report.when == "call" and report.passed:
            self.kept.add(promise)

    def lines(self, promises: Iterable[Promise]) -> dict[tuple[str, str], set[str]]:
        """The stores of which each sentence holds, contract first, in the order of the cases."""
        held = set(promises)
        ordered = sorted(self.promises.values(), key=lambda promise: promise.place)
        lines: dict[tuple[str, str], set[str]] = {}
        for promise in ordered:
            stores = lines.setdefault((promise.chapter, promise.sentence), set())
            if promise in held:
                stores.add(promise.store)
        return lines


def promise_of(item: pytest.Item) -> Promise | None:
    """What a test proves, if it proves anything of a store."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    marker = item.get_closest_marker("guarantee")
    if marker is not None:
        store, sentence = (str(text).format(**parameters) for text in marker.args)
        return Promise(_BEYOND, sentence, store, (sys.maxsize, 0))
    suite = _SUITE.fullmatch(getattr(item.parent, "name", ""))
    if suite is None or not isinstance(item, pytest.Function) or item.cls is None:
        return None
    name = item.originalname
    chapter, cases = next((at, kind) for at, kind in enumerate(item.cls.__mro__) if name in vars(kind))
    words = name.removeprefix("test_").replace("_", " ")
    return Promise(
        (cases.__doc__ or cases.__name__).strip().rstrip("."),
        words[0].upper() + words[1:],
        _KINDS[suite[1]],
        (chapter, list(vars(cases)).index(name)),
    )


def table(lines: dict[tuple[str, str], set[str]]) -> Iterator[str]:
    """The lines of the table, a chapter after the other."""
    chapter = None
    for (title, sentence), stores in lines.items():
        if title != chapter:
            chapter = title
            yield f"\n### {title}\n"
            yield f"| | {' | '.join(STORES.values())} |"
            yield f"|---|{':-:|' * len(STORES)}"
        marks = " | ".join(_PASSED if store in stores else _ABSENT for store in STORES)
        yield f"| {sentence} | {marks} |"
    yield ""


def written(document: str) -> set[tuple[str, str]]:
    """The sentences of a document with the stores that keep them, as a set of pairs."""
    pairs = set()
    for line in document.partition(BEGIN)[2].partition(END)[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 1 + len(STORES):
            pairs |= {
                (cells[0], store) for store, mark in zip(STORES, cells[1:], strict=True) if mark == _PASSED
            }
    return pairs


def differences(findings: Findings, document: str) -> list[str]:
    """What the document says too much or too little, by the tests that there are."""
    expected = {(promise.sentence, promise.store) for promise in findings.promises.values()}
    told = written(document)
    sentences = {sentence for sentence, _ in told}
    missing = {promise.sentence for promise in findings.promises.values()} - sentences
    return [f"no test proves of {store}: {sentence}" for sentence, store in sorted(told - expected)] + [
        f"not in the table: {sentence}" for sentence in sorted(missing)
    ]


def run(*options: str) -> tuple[int, Findings]:
    """Runs pytest on the tests of stores."""
    findings = Findings()
    folders = [str(REPOSITORY / folder) for folder in TESTS if (REPOSITORY / folder).exists()]
    arguments = ["-q", "--no-header", "--rootdir", str(REPOSITORY), *options, *folders]
    return int(pytest.main(arguments, plugins=[findings])), findings


def main(arguments: list[str]) -> int:
    """Writes the table, or compares it; the exit status."""
    document = DOCUMENT.read_text(encoding="utf-8")
    if arguments == ["--check"]:
        _, findings = run("--collect-only", "-qq")
        problems = differences(findings, document)
        print("\n".join(problems) or "docs/stores.md names what the tests prove")
        return bool(problems)
    status, findings = run()
    if status or findings.broken:
        print("not written: a test failed")
        return 1
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n".join(table(findings.lines(findings.kept)))
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    print("docs/stores.md is written")
    return 0


if __name__ == "__main__":
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "protos" / "gen" / "python")]
    raise SystemExit(main(sys.argv[1:]))
