"""A back end that is a command: fixed arguments, prompt on standard input, answer on standard output."""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from relay_service.client.backends.base import BackendFailure, RunRequest, RunResult, turns_of
from relay_service.client.backends.child_process import ChildCommand, ChildProcess, run_child
from relay_service.client.backends.supervision import settle, supervise
from relay_service.client.outcomes import BackendClass
from relay_service.client.payloads import ChatPayload, Payload
from service_common.clocks import Clock, SystemClock

TERMINATE_SECONDS = 0.2
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
DEFAULT_LANGUAGE = "C.UTF-8"

log = structlog.get_logger(__name__)


class CommandBackend:
    """Runs one child process a job, in a session and a scratch folder of its own.

    The child's environment is PATH and LANG from the daemon's, and HOME and TMPDIR set to the scratch folder;
    no key, token or path of the owner reaches it. Nothing of a job is ever an argument.
    """

    backend_class: Final[BackendClass] = "process"

    def __init__(
        self,
        *,
        service: str,
        argv: Sequence[str],
        model: str,
        backend_id: str,
        environment: Mapping[str, str],
        clock: Clock | None = None,
        terminate_seconds: float = TERMINATE_SECONDS,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            service: The owner's name for it.
            argv: Program and arguments.
            model: What the owner says the command runs.
            backend_id: One of the known ids of back ends.
            environment: The daemon's environment; PATH and LANG are taken from it.
            clock: Measures runs and their time limit.
            terminate_seconds: Time between SIGTERM and SIGKILL when a run is ended early.

        Raises:
            ValueError: There is no program, or an argument holds a NUL.
        """
        self.service = service
        self.model = model
        self.backend_id = backend_id
        self._argv = checked_argv(argv)
        self._path = environment.get("PATH", DEFAULT_PATH)
        self._language = environment.get("LANG", DEFAULT_LANGUAGE)
        self._clock = clock or SystemClock()
        self._terminate_seconds = terminate_seconds
        self._missing = False

    async def detect(self) -> bool:
        """Tell whether the program is there and may be run."""
        found = shutil.which(self._argv[0], path=self._path) is not None
        # It is asked every few seconds, and news only once.
        if not found and not self._missing:
            log.info("backend_unhealthy", service=self.service, reason="program-not-found")
        self._missing = not found
        return found

    async def run(self, request: RunRequest, cancelled: asyncio.Event) -> RunResult:
        """Answer one job; see `Backend.run`."""
        started = self._clock.monotonic()
        text = await supervise(
            self._answer(request), cancelled, request.limits.wall_clock_seconds, self._clock
        )
        duration_ms = round((self._clock.monotonic() - started) * 1000)
        return RunResult(text, "unknown", stop_reported=False, duration_ms=duration_ms)

    async def close(self) -> None:
        """Nothing is held between runs."""

    async def _answer(self, request: RunRequest) -> str:
        try:
            child = await self._run_in_scratch(request)
        except OSError:
            raise BackendFailure("service_unavailable") from None
        return self._text(child)

    async def _run_in_scratch(self, request: RunRequest) -> ChildProcess:
        scratch = Path(tempfile.mkdtemp(prefix="relay-job-"))
        try:
            return await run_child(self._command(request, scratch), self._clock)
        finally:
            await settle(asyncio.create_task(asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)))

    def _command(self, request: RunRequest, scratch: Path) -> ChildCommand:
        home = str(scratch)
        return ChildCommand(
            argv=self._argv,
            stdin=render(request.payload).encode("utf-8", "replace"),
            folder=scratch,
            environment={"PATH": self._path, "LANG": self._language, "HOME": home, "TMPDIR": home},
            output_limit_bytes=request.limits.max_output_bytes,
            terminate_seconds=self._terminate_seconds,
        )

    def _text(self, child: ChildProcess) -> str:
        if child.overflowed:
            raise BackendFailure("output-too-large")
        if child.exit_status != 0:
            log.info(
                "command_failed",
                service=self.service,
                exit_status=child.exit_status,
                stderr_bytes=child.stderr_bytes,
            )
            raise BackendFailure("service_unavailable")
        # A command ends its last line; the answer is what it said before that.
        return child.output.text().removesuffix("\n")


def render(payload: Payload) -> str:
    """Return what the command reads on its standard input.

    A prompt is given as it is, after the system text and an empty line if there is one. A conversation is
    one `role: content` line a message; further lines of a message are indented, so that no message can
    pretend to be two.
    """
    turns = turns_of(payload)
    if isinstance(payload, ChatPayload):
        return "".join(f"{role}: {_indented(content)}\n" for role, content in turns)
    return "\n\n".join(content for _, content in turns)


def checked_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the argument vector.

    Raises:
        ValueError: There is no program, or an argument holds a NUL.
    """
    if not argv or not argv[0]:
        raise ValueError("must name a program")
    if any("\0" in argument for argument in argv):
        raise ValueError("must not hold a NUL")
    return tuple(argv)


def _indented(content: str) -> str:
    return "\n  ".join(content.splitlines())
