"""Shows on this machine what the relay is for. Run it with `make demo`, or `python examples/python/demo`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Run as a folder, Python looks for modules in that folder; the demo's names start at the repository.
sys.path[:1] = [str(ROOT), str(ROOT / "protos" / "gen" / "python")]


def run() -> int:
    try:
        from examples.python.demo.play import main

        return main()
    except KeyboardInterrupt:
        # While everything was still being loaded: there is nothing to end yet.
        return 130


if __name__ == "__main__":
    sys.exit(run())
