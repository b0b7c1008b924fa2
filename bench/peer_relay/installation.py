"""Installs the published relay, and the Node release it asks for, into a folder of the bench's own."""

import asyncio
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import orjson

from bench.variant import VariantUnavailableError

SOURCE = Path(__file__).parent.parent / "peer"
DESTINATION = Path(__file__).parent.parent / ".peer"
_SCRIPT = "server.mjs"
_INPUTS = ("package.json", "package-lock.json")
_STAMP = "installed.sha256"
_INSTALL_SECONDS = 240.0
_OLDEST_NODE = (22, 14)


@dataclass(frozen=True, slots=True)
class Installation:
    """A peer that is ready to run.

    Attributes:
        node: the Node executable.
        script: the server that wraps the relay.
        version: what was installed, for the report.
    """

    node: Path
    script: Path
    version: str


async def ensure_installed(destination: Path = DESTINATION, source: Path = SOURCE) -> Installation:
    """The installed peer, installing it first where that has not been done for these very inputs.

    Raises:
        VariantUnavailableError: npm is missing, or the installation failed.
    """
    digest = sha256(b"".join((source / name).read_bytes() for name in _INPUTS)).hexdigest()
    stamp = destination / _STAMP
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != digest:
        await _install(destination, source)
        stamp.write_text(digest, encoding="utf-8")
    # Copied, not run in place: Node looks for packages from where the script lies.
    script = shutil.copyfile(source / _SCRIPT, destination / _SCRIPT)
    node, version = await _usable_node(destination)
    return Installation(node, script, f"{_package_versions(source)}, Node {version}")


class Installer:
    """Installs the peer at most once a run, and remembers a failure as well as a success."""

    def __init__(self, destination: Path = DESTINATION, source: Path = SOURCE) -> None:
        self._destination = destination
        self._source = source
        self._installation: Installation | None = None
        self._reason = ""

    async def prepare(self) -> str:
        """Installs the peer where needed; empty when it is ready, otherwise the reason why it is not."""
        if self._installation is None and not self._reason:
            try:
                self._installation = await ensure_installed(self._destination, self._source)
            except VariantUnavailableError as reason:
                self._reason = str(reason)
        return self._reason

    async def installation(self) -> Installation:
        """The installed peer.

        Raises:
            VariantUnavailableError: it cannot be installed; the reason is that of the first attempt.
        """
        await self.prepare()
        if self._installation is None:
            raise VariantUnavailableError(self._reason)
        return self._installation


def node_version(text: str) -> tuple[int, int]:
    """Major and minor of what `node --version` prints, such as v22.14.0.

    Raises:
        ValueError: that is no version.
    """
    major, minor, *_rest = text.strip().removeprefix("v").split(".")
    return int(major), int(minor)


def _package_versions(source: Path) -> str:
    wanted = orjson.loads((source / "package.json").read_bytes()).get("dependencies", {})
    return ", ".join(f"{name} {version}" for name, version in wanted.items() if name != "node")


def _prepare(destination: Path, source: Path) -> None:
    destination.mkdir(parents=True, exist_ok=True)
    # The folder ignores itself: nothing in it belongs to the project.
    (destination / ".gitignore").write_text("*\n", encoding="utf-8")
    for name in _INPUTS:
        shutil.copyfile(source / name, destination / name)


async def _install(destination: Path, source: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise VariantUnavailableError("npm is not on the PATH, so the published relay cannot be installed")
    _prepare(destination, source)
    arguments = ("ci", "--prefix", str(destination), "--no-audit", "--no-fund", "--loglevel=error")
    status, output = await _run(npm, *arguments, directory=destination, seconds=_INSTALL_SECONDS)
    if status != 0:
        raise VariantUnavailableError(f"npm could not install the published relay: {_last_lines(output)}")


async def _usable_node(destination: Path) -> tuple[Path, str]:
    own = destination / "node_modules" / "node" / "bin" / "node"
    fallback = shutil.which("node")
    for candidate in (own, *([Path(fallback)] if fallback else [])):
        if not candidate.is_file():
            continue
        status, output = await _run(str(candidate), "--version", directory=destination, seconds=10.0)
        if status == 0 and node_version(output) >= _OLDEST_NODE:
            return candidate, output.strip()
    wanted = ".".join(map(str, _OLDEST_NODE))
    raise VariantUnavailableError(f"it needs Node {wanted} or later, and none was installed or found")


async def _run(program: str, *arguments: str, directory: Path, seconds: float) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _none = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, f"gave up after {seconds:.0f} s"
    return process.returncode or 0, output.decode(errors="replace")


def _last_lines(output: str, count: int = 4) -> str:
    return " | ".join(line.strip() for line in output.strip().splitlines()[-count:])
