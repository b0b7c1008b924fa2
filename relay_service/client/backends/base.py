"""What a back end is to the daemon: something on this machine, or reached from it, that answers a prompt."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal, Protocol

from relay_service.client.outcomes import BackendClass, Stop
from relay_service.client.payloads import ChatPayload, GeneratePayload, Payload

FailureCode = Literal["service_unavailable", "timeout", "output-too-large"]

KINDS = frozenset({GeneratePayload.kind, ChatPayload.kind})

METERED_IDS = frozenset(
    {"anthropic", "openai", "gemini", "grok", "groq", "openrouter", "together", "deepseek", "mistral"}
)
LOCAL_IDS = frozenset({"ollama", "mlx", "llamacpp", "vllm", "lmstudio", "jan", "localai"})
HTTP_IDS = METERED_IDS | LOCAL_IDS | {"openai-http"}
SUBSCRIPTION_IDS = frozenset({"claude-cli", "codex-cli"})
BACKEND_IDS = HTTP_IDS | SUBSCRIPTION_IDS
"""Every id that may stand in a capability. The set is closed: a peer refuses a matrix with another one."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run may cost this machine.

    Attributes:
        max_output_bytes: Bound on the answer, counted as UTF-8 bytes.
        wall_clock_seconds: Bound on the whole run, waiting included.
    """

    max_output_bytes: int
    wall_clock_seconds: float


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One job as a back end sees it.

    The payload is the only part that comes from a site. Nothing in it chooses a model, an address, a flag or
    a sampling parameter: those are the back end's own, from its configuration.
    """

    kind: str
    payload: Payload
    limits: RunLimits

    def __post_init__(self) -> None:
        if self.kind != self.payload.kind:
            raise ValueError("the payload is of another kind")


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run.

    Attributes:
        text: The answer, never interpreted.
        stop: Why the model stopped.
        stop_reported: Whether this back end can report a stop reason at all.
        duration_ms: From the start of the run to its end.
    """

    text: str = field(repr=False)
    stop: Stop
    stop_reported: bool
    duration_ms: int


class BackendFailure(Exception):  # noqa: N818 - the outcome of a run, reported to the site as such
    """The back end did not answer.

    It holds a class of failure and nothing else: what a back end says about its own failure may name paths,
    accounts or addresses of this machine, so it never travels and is not kept here either.
    """

    def __init__(self, code: FailureCode) -> None:
        super().__init__(code)
        self.code: FailureCode = code

    @property
    def retryable(self) -> bool:
        """Whether the same job may succeed elsewhere or later."""
        return self.code != "output-too-large"


class RunCanceled(Exception):  # noqa: N818 - the outcome of a run, reported to the relay as such
    """The run was ended because its `cancelled` event was set; nothing of it is left running."""


class Backend(Protocol):
    """One configured service that can run jobs."""

    @property
    def backend_id(self) -> str:
        """One of `BACKEND_IDS`."""

    @property
    def backend_class(self) -> BackendClass: ...

    @property
    def model(self) -> str: ...

    @property
    def service(self) -> str:
        """The owner's name for it."""

    async def detect(self) -> bool:
        """Tell whether it would answer now. Only what is both configured and healthy is advertised."""

    async def run(self, request: RunRequest, cancelled: asyncio.Event) -> RunResult:
        """Answer one job.

        Setting `cancelled`, and cancelling the task that awaits this, both end the work at once and return
        when nothing of it is left: no open connection, no child process.

        Raises:
            BackendFailure: It did not answer within the limits.
            RunCanceled: `cancelled` was set. It wins over an answer that came at the same moment.
        """

    async def close(self) -> None:
        """Give up connections held between runs."""


def turns_of(payload: Payload) -> list[tuple[str, str]]:
    """Return the conversation as (role, content) pairs, the system text first."""
    turns = [] if payload.system is None else [("system", payload.system)]
    match payload:
        case GeneratePayload():
            return [*turns, ("user", payload.prompt)]
        case ChatPayload():
            return [*turns, *((message.role, message.content) for message in payload.messages)]
