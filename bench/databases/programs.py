"""Where the programs of the database servers are."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

from bench.variant import VariantUnavailableError

# Where distributions put them, since several releases may be there side by side.
_POSTGRES_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


def postgres_program(name: str) -> str:
    """One of the server's programs, of the newest release that is here.

    Raises:
        VariantUnavailableError: there is none.
    """
    if found := shutil.which(name):
        return found
    folders = [folder for pattern in _POSTGRES_FOLDERS for folder in Path("/").glob(pattern[1:])]
    programs = [folder / name for folder in sorted(folders, key=_release) if (folder / name).is_file()]
    if not programs:
        raise VariantUnavailableError(
            "no PostgreSQL server here (on Debian: apt install postgresql); initdb is looked for on PATH too"
        )
    return str(programs[-1])


def _release(folder: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", str(folder))))


def secantus_program() -> str:
    """SecantusDB's program, in the environment of this interpreter.

    Raises:
        VariantUnavailableError: it is not installed.
    """
    program = Path(sys.executable).with_name("secantusd-py")
    if not program.is_file():
        raise VariantUnavailableError(
            "SecantusDB, which speaks MongoDB's protocol, is not installed: pip install 'sealwork[dev]'"
        )
    return str(program)


def require_package(package: str, extra: str) -> None:
    """Raises VariantUnavailableError where the client library of a database is not installed."""
    if importlib.util.find_spec(package) is None:
        raise VariantUnavailableError(f"needs the extra: pip install 'sealwork[{extra}]' ({package})")
