"""Which modules may hold private keys.

import-linter sees another project's package as one piece, so the rule about single modules of PyNaCl is here.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ("relay_service", "service_common", "durable_service", "relay_connector")
PRIVATE_KEY_MODULES = ("nacl.public", "nacl.secret", "nacl.signing")
MAY_HOLD_PRIVATE_KEYS = (
    "relay_service/client/",
    "service_common/signing.py",
    "service_common/session_client.py",
)


def test_private_key_code_is_imported_by_clients_alone() -> None:
    offenders = [
        f"{name} imports {module}"
        for name, module in _imports(*PACKAGES)
        if module.startswith(PRIVATE_KEY_MODULES) and not name.startswith(MAY_HOLD_PRIVATE_KEYS)
    ]

    assert offenders == []


def test_every_folder_of_code_is_a_package() -> None:
    # The linter of imports does not look into a folder without __init__.py, and says nothing.
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}

    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_the_rule_sees_every_form_of_import() -> None:
    source = (
        "import nacl.public\n"
        "from nacl import signing\n"
        "def late() -> None:\n"
        "    from nacl.signing import SigningKey\n"
    )

    assert [module for module in _imported(ast.parse(source)) if module.startswith(PRIVATE_KEY_MODULES)] == [
        "nacl.public",
        "nacl.signing",
        "nacl.signing.SigningKey",
    ]


def _imports(*packages: str) -> list[tuple[str, str]]:
    return [
        (path.relative_to(ROOT).as_posix(), module)
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        for module in _imported(ast.parse(path.read_text(encoding="utf-8")))
    ]


def _imported(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found
