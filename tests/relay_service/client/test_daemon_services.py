"""What configured services offer, and how a back end's end becomes an outcome."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from relay_service.client import CanceledOutcome, ErrorOutcome, GeneratePayload, JobContext, OkOutcome
from relay_service.client.backends.base import BackendFailure, RunCanceled, RunLimits, RunResult
from relay_service.client.daemon_services import Offer, Services
from relay_service.client.outcomes import RunMetadata
from relay_service.client.service_config import FixedCommand, HttpEndpoint, ServiceConfig
from relay_service.core.model import Audience, Capability, WithheldKind
from service_common.clocks import ManualClock

CHAT = ServiceConfig(
    service="desk",
    kinds=("llm.chat", "llm.generate"),
    backend_id="llamacpp",
    model="small",
    offer_scope="team",
    endpoint=HttpEndpoint("http://127.0.0.1:8080"),
    cost="free",
)
COMMAND = ServiceConfig(
    service="tool",
    kinds=("llm.generate",),
    backend_id="ollama",
    model="fixed",
    offer_scope="private",
    endpoint=FixedCommand(("/bin/cat",)),
    cost="free",
)
CHAT_ROW = Capability("llm.chat", "desk", "llamacpp", "http", "small", Audience.TEAM)
GENERATE_ROW = replace(CHAT_ROW, kind="llm.generate")
TOOL_ROW = Capability("llm.generate", "tool", "ollama", "process", "fixed", Audience.PRIVATE)


def services(*configured: ServiceConfig, defaults: dict[str, str] | None = None) -> Services:
    return Services(configured, defaults or {}, {}, ManualClock())


def test_one_healthy_service_is_offered_for_each_of_its_kinds() -> None:
    assert services(CHAT).offer({"desk": True}) == Offer((CHAT_ROW, GENERATE_ROW), ())


def test_a_service_that_does_not_answer_is_not_offered() -> None:
    both = services(CHAT, COMMAND)

    assert both.offer({"desk": False, "tool": True}) == Offer((TOOL_ROW,), ())
    assert both.offer({}) == Offer((), ())


def test_of_two_services_the_owner_has_to_choose() -> None:
    offer = services(CHAT, COMMAND).offer({"desk": True, "tool": True})
    claimants = (("desk", Audience.TEAM), ("tool", Audience.PRIVATE))

    assert offer == Offer((CHAT_ROW,), (WithheldKind("llm.generate", claimants),))


def test_the_owners_choice_is_offered_and_no_other_in_its_place() -> None:
    chosen = services(CHAT, COMMAND, defaults={"llm.generate": "tool"})

    assert chosen.offer({"desk": True, "tool": True}) == Offer((CHAT_ROW, TOOL_ROW), ())
    assert chosen.offer({"desk": True, "tool": False}) == Offer((CHAT_ROW,), ())


def test_where_grants_name_the_service_all_healthy_ones_are_offered() -> None:
    named = Services((CHAT, COMMAND), {"llm.generate": "tool"}, {}, ManualClock(), named_by_grant=True)

    assert named.offer({"desk": True, "tool": True}) == Offer((CHAT_ROW, GENERATE_ROW, TOOL_ROW), ())
    assert named.offer({"desk": False, "tool": True}) == Offer((TOOL_ROW,), ())


class StubBackend:
    """A back end that ends as it is told."""

    service = "desk"
    backend_id = "llamacpp"
    backend_class = "http"
    model = "small"

    def __init__(self, end: Any) -> None:
        self.end = end
        self.requests: list[Any] = []

    async def detect(self) -> bool:
        return True

    async def run(self, request: Any, cancelled: asyncio.Event) -> RunResult:
        self.requests.append(request)
        if isinstance(self.end, Exception):
            raise self.end
        result: RunResult = self.end
        return result

    async def close(self) -> None:
        pass


def handled_by(end: Any, payload: Any = None) -> Any:
    configured = services(CHAT)
    backend = StubBackend(end)
    configured._backends = {"desk": backend}  # type: ignore[dict-item]
    context = JobContext(
        job_id="j",
        kind="llm.generate",
        owner="alice",
        site="s",
        purpose=None,
        payload=payload or GeneratePayload("hello"),
        capability=GENERATE_ROW,
        limits=RunLimits(max_output_bytes=10, wall_clock_seconds=5),
        own=True,
        cancelled=asyncio.Event(),
        seconds_left=lambda: 60.0,
    )
    return configured.handlers()["llm.generate"](context), backend


async def test_an_answer_tells_what_ran() -> None:
    handling, backend = handled_by(RunResult("text", "length", stop_reported=True, duration_ms=7))
    outcome, ran = await handling

    assert outcome == OkOutcome("text")
    assert ran == RunMetadata("small", "http", 7, "length", stop_reported=True)
    assert backend.requests[0].limits == RunLimits(max_output_bytes=10, wall_clock_seconds=5)


@pytest.mark.parametrize(
    ("code", "retryable"), [("service_unavailable", True), ("timeout", True), ("output-too-large", False)]
)
async def test_a_failure_is_told_by_its_class_alone(code: Any, retryable: bool) -> None:
    outcome, ran = await handled_by(BackendFailure(code))[0]

    assert isinstance(outcome, ErrorOutcome)
    assert (outcome.code, outcome.retryable, ran.stop) == (code, retryable, None)


async def test_a_canceled_run_is_a_canceled_outcome() -> None:
    assert (await handled_by(RunCanceled())[0]).outcome == CanceledOutcome()


async def test_a_kind_that_no_back_end_knows_is_not_answered() -> None:
    outcome, _ = await handled_by(None, payload="text")[0]

    assert isinstance(outcome, ErrorOutcome)
    assert outcome.code == "service_unavailable"
