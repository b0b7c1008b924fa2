"""Jobs as the tests hand them to back ends."""

from relay_service.client.backends.base import RunLimits, RunRequest
from relay_service.client.payloads import ChatMessage, ChatPayload, GeneratePayload

LIMITS = RunLimits(max_output_bytes=10_000, wall_clock_seconds=60)


def generate(prompt: str, system: str | None = None, limits: RunLimits = LIMITS) -> RunRequest:
    return RunRequest("llm.generate", GeneratePayload(prompt, system), limits)


def chat(*messages: ChatMessage, system: str | None = None) -> RunRequest:
    return RunRequest("llm.chat", ChatPayload(messages, system), LIMITS)
