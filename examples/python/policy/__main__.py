"""A policy for a relay: `keys FILE` makes the key that signs grants, `serve POLICY` answers the relay."""

import argparse
import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# The checkout, in place of this folder, so that the example runs without an install.
sys.path[:1] = [str(ROOT), str(ROOT / "protos" / "gen" / "python")]

from examples.python.policy.decisions import Policy  # noqa: E402
from examples.python.policy.service import serve  # noqa: E402
from relay_service.client.keys import Keys  # noqa: E402
from relay_service.core.identity import encode_base64url  # noqa: E402


def main() -> int:
    arguments = _arguments()
    try:
        if arguments.command == "keys":
            return _make_keys(arguments.file)
        policy = Policy(arguments.policy, arguments.projection)
        signer = Keys.load(arguments.keys).signer
        asyncio.run(serve(policy, signer, arguments.listen))
    except (OSError, ValueError) as error:
        print(f"policy: {error}", file=sys.stderr)
        return 1
    return 0


def _make_keys(file: Path) -> int:
    keys = Keys.generate()
    keys.save(file)
    print(encode_base64url(keys.signer.public_key))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="policy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("keys", help="make a key in FILE and print its public half")
    make.add_argument("file", type=Path)
    answer = commands.add_parser("serve", help="answer a relay on loopback")
    answer.add_argument("policy", type=Path, help="what sites declared and people chose")
    answer.add_argument("--projection", type=Path, required=True, help="the relay's projection file")
    answer.add_argument("--keys", type=Path, required=True, help="the key that signs grants")
    answer.add_argument("--listen", default="127.0.0.1:7500")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
