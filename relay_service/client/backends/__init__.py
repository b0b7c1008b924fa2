"""Back ends of the daemon: what answers the prompts."""

from relay_service.client.backends.base import (
    Backend,
    BackendFailure,
    RunCanceled,
    RunLimits,
    RunRequest,
    RunResult,
)
from relay_service.client.backends.command import CommandBackend
from relay_service.client.backends.openai_http import OpenAIHttpBackend

__all__ = [
    "Backend",
    "BackendFailure",
    "CommandBackend",
    "OpenAIHttpBackend",
    "RunCanceled",
    "RunLimits",
    "RunRequest",
    "RunResult",
]
