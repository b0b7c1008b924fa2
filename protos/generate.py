"""Writes the Python code for the protos, or checks that what is committed is up to date.

python protos/generate.py              write protos/gen/python
python protos/generate.py --check      compare byte for byte with the pinned generators; 2 when stale
python protos/generate.py --lint       buf lint, and buf breaking against the committed baseline
python protos/generate.py --baseline   make the present protos the baseline (once a release)
"""

import argparse
import sys
import tempfile
from pathlib import Path

import buf_workspace
import compiler

STALE = 2


def main() -> int:
    """Runs one of the four actions; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="compare with the committed code, write nothing")
    action.add_argument("--lint", action="store_true", help="run buf lint and buf breaking")
    action.add_argument("--baseline", action="store_true", help="write the baseline of the breaking check")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            return check()
        if arguments.lint:
            return buf_workspace.check()
        if arguments.baseline:
            return buf_workspace.write_baseline()
        return generate()
    except compiler.CompilerError as error:
        print(error, file=sys.stderr)
        return 1


def generate() -> int:
    """Replaces the committed code; with other generators than the pinned ones it warns and goes on."""
    for mismatch in compiler.version_mismatches():
        print(f"warning: {mismatch}; do not commit what this writes", file=sys.stderr)
    target = compiler.GENERATED_ROOT
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the swap is two renames and a failure leaves the old code in place.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
        fresh = Path(scratch) / target.name
        fresh.mkdir()
        compiler.generate_into(fresh)
        if target.exists():
            target.rename(Path(scratch) / "old")
        fresh.rename(target)
    print(f"wrote {sum(1 for _ in _files(target))} files to {_shown(target)}")
    return 0


def check() -> int:
    """Compares the committed code with what the pinned generators write now."""
    if mismatches := compiler.version_mismatches():
        print("\n".join(["cannot compare generated code:", *mismatches]), file=sys.stderr)
        return STALE
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / compiler.NAMESPACE
        fresh.mkdir()
        compiler.generate_into(fresh)
        stale = differences(compiler.GENERATED_ROOT, fresh)
    if stale:
        print("\n".join(["generated code is stale, run `make proto`:", *stale]), file=sys.stderr)
        return STALE
    print("generated code is up to date")
    return 0


def differences(committed: Path, fresh: Path) -> list[str]:
    """Lists the files that differ between two trees, with what is wrong with each, in order."""
    old, new = _files(committed), _files(fresh)
    missing = [(name, "missing") for name in new.keys() - old.keys()]
    left_over = [(name, "left over") for name in old.keys() - new.keys()]
    changed = [(name, "differs") for name in old.keys() & new.keys() if old[name] != new[name]]
    return [f"  {name}: {fault}" for name, fault in sorted(missing + left_over + changed)]


def _files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _shown(path: Path) -> Path:
    return path.relative_to(compiler.PROTO_ROOT.parent)


if __name__ == "__main__":
    sys.exit(main())
