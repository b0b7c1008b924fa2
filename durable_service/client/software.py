"""What this client calls itself."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

CLIENT_NAME: Final = "sealwork-python"
PROTOCOL_VERSION: Final = 1


def client_version() -> str:
    """Return the version of the installed distribution; `0` from a bare checkout."""
    try:
        return version("sealwork")
    except PackageNotFoundError:
        return "0"
