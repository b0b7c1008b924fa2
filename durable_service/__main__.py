"""The durable-service command."""

import sys


def main() -> int:
    """Says that this version has no durable service; returns a failing exit status."""
    print("durable-service is not part of this version of sealwork", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
