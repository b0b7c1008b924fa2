import pytest

from relay_service.client.backends.base import (
    BACKEND_IDS,
    BackendFailure,
    FailureCode,
    RunLimits,
    RunRequest,
    RunResult,
)
from relay_service.client.payloads import GeneratePayload


def test_the_ids_that_every_peer_knows() -> None:
    assert " ".join(sorted(BACKEND_IDS)) == (
        "anthropic claude-cli codex-cli deepseek gemini grok groq jan llamacpp lmstudio localai mistral mlx "
        "ollama openai openai-http openrouter together vllm"
    )


@pytest.mark.parametrize(
    ("code", "retryable"), [("service_unavailable", True), ("timeout", True), ("output-too-large", False)]
)
def test_what_may_be_tried_again(code: FailureCode, retryable: bool) -> None:
    failure = BackendFailure(code)
    assert (failure.code, failure.retryable, str(failure)) == (code, retryable, code)


def test_a_payload_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="another kind"):
        RunRequest("llm.chat", GeneratePayload("Why?"), RunLimits(1, 1))


def test_text_forms_hold_no_text_of_a_job() -> None:
    request = RunRequest("llm.generate", GeneratePayload("a secret"), RunLimits(1, 1))
    assert "secret" not in repr(request)
    assert "secret" not in repr(RunResult("a secret", "end", stop_reported=True, duration_ms=1))
