"""Runs buf over the protos without a network.

buf wants imported files in the workspace. The google/rpc sources come from the installed Python package, so
the workspace is laid out in a scratch folder: our protos, google/rpc beside them, and buf.yaml as committed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import compiler

BASELINE = compiler.PROTO_ROOT / "baseline.binpb"


def check() -> int:
    """Runs the linter and the breaking check; both always run. Returns the exit status of the worse one."""
    if not BASELINE.exists():
        print(
            f"{BASELINE.name} is missing: make it with `python protos/generate.py --baseline`",
            file=sys.stderr,
        )
        return 1
    with _workspace() as root:
        status = max(_buf(root, "lint"), _buf(root, "breaking", "--against", str(BASELINE)))
    print("buf lint and buf breaking: " + ("failed" if status else "clean"))
    return status


def write_baseline() -> int:
    """Replaces the committed baseline with the present protos."""
    with _workspace() as root:
        status = _buf(root, "build", "--exclude-source-info", "-o", "baseline.binpb")
        if status == 0:
            shutil.copyfile(root / "baseline.binpb", BASELINE)
            print(f"wrote {BASELINE.relative_to(compiler.PROTO_ROOT.parent)}")
    return status


@contextmanager
def _workspace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "workspace"
        root.mkdir()
        shutil.copyfile(compiler.PROTO_ROOT / "buf.yaml", root / "buf.yaml")
        for source in compiler.sources():
            _copy(compiler.PROTO_ROOT, source, root)
        google = compiler.google_root()
        for source in sorted(google.glob("google/rpc/*.proto")):
            _copy(google, source.relative_to(google), root)
        yield root


def _copy(origin: Path, relative: Path, root: Path) -> None:
    target = root / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(origin / relative, target)


def _buf(root: Path, *arguments: str) -> int:
    program = shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")
    if program is None:
        message = "buf is not installed: run `make setup`"
        raise compiler.CompilerError(message)
    environment = {**os.environ, "BUF_CACHE_DIR": str(root.parent / "cache")}
    return subprocess.run(
        [program, *arguments], cwd=root, env=environment, check=False, stdin=subprocess.DEVNULL
    ).returncode
