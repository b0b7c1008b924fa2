"""Installs a wheel with its own dependencies into a fresh environment and uses it there.

    python tests/wheel_check.py dist/sealwork-0.1.0-py3-none-any.whl

What the development environment hides shows up here: a dependency that pyproject.toml does not name, a
package that the wheel does not hold, a console script that leads nowhere.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "requirements" / "constraints.txt"

_IMPORT = """
import importlib, importlib.metadata, pathlib, pkgutil, sys
extras = {"psycopg": "postgres", "psycopg_pool": "postgres", "pymongo": "mongo", "bson": "mongo"}
names = ["relay_service", "service_common", "durable_service", "relay_connector", "sealwork"]
for name in names:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        # The contract suites are for test runs, which bring pytest.
        if ".contract" in module.name or module.name.endswith(".__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            # What needs an extra says which one, or is named after what it needs, and is loaded by a part
            # that says it; everything else works without.
            extra = extras.get((error.name or "").partition(".")[0])
            if extra is None or extra not in module.name:
                assert "pip install 'sealwork[" in str(error), error
                assert ".store." in module.name, module.name
    for folder in package.__path__:
        assert pathlib.Path(folder).is_relative_to(sys.prefix), folder
import sealwork.relay.v1.daemon_plane_pb2
scripts = importlib.metadata.distribution("sealwork").entry_points
assert all(callable(script.load()) for script in scripts)
print(f"{len(names)} packages and {len(list(scripts))} console scripts import from the wheel")
"""


def main(wheel: Path) -> None:
    """Installs the wheel and imports every module of it; raises CalledProcessError when one is missing."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", str(CONSTRAINTS), str(wheel)], check=True, cwd=scratch)
        # -I: neither this checkout nor the caller's environment may lend a module.
        subprocess.run([python, "-I", "-c", _IMPORT], check=True, cwd=scratch)
        subprocess.run(
            [environment / "bin" / "relay-service", "--help"],
            check=True,
            cwd=scratch,
            stdout=subprocess.DEVNULL,
        )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]).resolve())
    except subprocess.CalledProcessError as error:
        sys.exit(f"the wheel does not work: {Path(error.cmd[0]).name} ended with status {error.returncode}")
