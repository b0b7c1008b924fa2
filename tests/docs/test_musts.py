"""Every rule has its row, and every module and test that the rows name is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = ROOT / "relay_service" / "store" / "contract"
PAGE = ROOT / "docs" / "musts.md"
SHORT = {"relay/": "relay_service/", "t/": "tests/relay_service/"}
RULES = {
    *("PAIR_ONE_USER", "PAIR_INTERACTIVE", "PAIR_CODE_EXPIRES", "VERSION_HANDSHAKE_REQUIRED"),
    *("SITE_KEY_BY_STUB", "SITES_LOCALLY_APPROVED", "KEYS_EXCHANGED_AT_CONSENT"),
    *("REQUESTS_SIGNED_NOT_BEARER", "LEASE_SCOPED_BY_GRANT", "STUB_METADATA_EXHAUSTIVE"),
    *("ENVELOPE_SEALED_AND_SIGNED", "KIND_TYPED_ONLY", "KIND_NO_CODE", "CLAIM_REQUIRES_CAPABILITY"),
    *("CAPABILITY_IS_DETECTED", "CLAIM_ATOMIC", "LEASE_HONORED", "LEASE_RECLAIMABLE"),
    *("AUDIENCE_BOTH_SIDES", "SUBSCRIPTION_SELF_LOCK", "METERED_DEFAULTS_SELF"),
    *("METERED_REQUIRES_CEILING", "COST_NOT_CONFIGURABLE", "REMOTE_IS_NEVER_FREE"),
    *("NAMED_LOCAL_ALLOWLIST", "REFUSAL_NOT_REOFFERED", "REVOCATION_HONORED", "CANCEL_HONORED"),
    *("DEPENDS_ON_GATING", "TTL_EXPIRY", "NO_RUNNER_SIGNAL", "RESULT_IDEMPOTENT"),
    *("PROVENANCE_NAMES_DEVICE", "INGRESS_LOGGED_BEFORE_EXECUTION", "NO_SHELL_INTERPOLATION"),
    *("NO_PAYLOAD_ROUTING", "STRIPPED_CHILD_ENV", "HTTP_BASE_URL_SAFE", "OUTPUT_INERT"),
    *("COMMUNITY_BUDGETS", "REVOCATION_IMMEDIATE", "CONSENT_BEFORE_ROUTE", "ROSTER_NOT_DISCLOSED"),
    *("EFFECTIVE_OFFER_ONLY", "FALLBACK_LABELED", "RELAY_BLIND", "SHARED_COMPUTE_DISCLOSED"),
}
ATTACKS = 11


def rows(columns: int) -> list[list[str]]:
    """The rows of the tables with that many columns, without their heads."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == columns and not set(cells[0]) <= {"-"}:
            found.append(cells)
    return [cells for cells in found if cells[0] not in {"Rule", "Attack"}]


def named(cell: str) -> list[str]:
    """What a cell names, with its whole path."""
    names = re.findall(r"`([^`]+)`", cell)
    for short, whole in SHORT.items():
        names = [whole + name.removeprefix(short) if name.startswith(short) else name for name in names]
    return names


def proofs() -> list[str]:
    cells = [row[-1] for row in (*rows(4), *rows(2))]
    return sorted({name for cell in cells for name in named(cell)})


def functions(path: Path, within: str = "") -> set[str]:
    """Names of the functions of a file, or of those of a class."""
    body = ast.parse(path.read_text()).body
    if within:
        body = [
            part
            for each in body
            if isinstance(each, ast.ClassDef) and each.name == within
            for part in each.body
        ]
    return {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def contract() -> set[str]:
    """Names of the tests of the contract, which a class in the tests of each store inherits."""
    names = set[str]()
    for path in CONTRACT.glob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.AsyncFunctionDef) and each.name.startswith("test_"):
                names.add(each.name)
    return names


def test_every_rule_has_one_row() -> None:
    assert len(RULES) == 47
    assert sorted(cells[0] for cells in rows(4)) == sorted(f"`{rule}`" for rule in RULES)
    assert len(rows(2)) == ATTACKS


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_is_kept_by_modules_that_exist(rule: str) -> None:
    (cells,) = (cells for cells in rows(4) if cells[0] == f"`{rule}`")
    _, meaning, modules, proved_by = cells
    assert meaning
    assert named(proved_by)
    assert bool(named(modules)) is not meaning.startswith("Does not apply")
    for module in named(modules):
        assert (ROOT / module).is_file(), module


@pytest.mark.parametrize("proof", proofs())
def test_a_named_test_exists(proof: str) -> None:
    path, *classes, name = proof.split("::")
    assert name.startswith("test_")
    found = functions(ROOT / path, *classes)
    if classes == ["TestMemoryRoutingStore"]:
        found |= contract()
    assert name in found
