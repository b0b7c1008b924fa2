"""Every state that a task can be found in, and every command, by name."""

from collections.abc import Callable

from durable_service.core.actions import (
    ActionRequest,
    abort_dispatch,
    begin_dispatch,
    confirm,
    mark_unknown,
    prepare,
)
from durable_service.core.approvals import Verdict, decide
from durable_service.core.artifacts import ArtifactContent, checkpoint_content, put_artifact, put_checkpoint
from durable_service.core.budgets import reserve
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.claims import ClaimRequest, claim, claim_for_recovery
from durable_service.core.extensions import update_extension
from durable_service.core.journal import append_event
from durable_service.core.leases import release, renew, yield_task
from durable_service.core.model import Reservation
from durable_service.core.outcomes import acknowledge_cancellation, cancel, complete, fail
from durable_service.core.reconciliation import Evidence, Finding, reconcile
from durable_service.core.step import Decision

from .tasks import HELLO, Story

# Where a task may be found. `held` means that worker-1 holds it; it has the plain action `send` prepared and
# `gated`, which waits for the reviewer. `recovering` and those after it are held to recover alone.
STAGES: dict[str, Callable[[], Story]] = {}
SHA = "sha256:" + "0" * 64


def stage(make: Callable[[], Story]) -> Callable[[], Story]:
    STAGES[make.__name__] = make
    return make


@stage
def queued() -> Story:
    return Story.begin()


@stage
def held() -> Story:
    story = Story.begin()
    story.claim()
    story.prepare("send")
    return story


@stage
def free() -> Story:
    story = held()
    story.release()
    return story


@stage
def lapsed() -> Story:
    story = held()
    story.pass_ms(100)
    return story


@stage
def executing() -> Story:
    story = held()
    story.dispatch("send")
    return story


@stage
def unknown() -> Story:
    story = executing()
    story.mark_unknown("send")
    return story


@stage
def abandoned() -> Story:
    story = unknown()
    story.release()
    return story


@stage
def recovering() -> Story:
    story = abandoned()
    story.claim(recovery=True)
    return story


@stage
def recovered() -> Story:
    story = recovering()
    story.reconcile(Finding.ABSENT)
    return story


@stage
def suspended() -> Story:
    story = held()
    story.prepare("gated", approver="reviewer")
    story.dispatch("gated")
    return story


@stage
def suspended_free() -> Story:
    story = suspended()
    story.release()
    return story


@stage
def canceling() -> Story:
    story = held()
    story.cancel()
    return story


@stage
def canceling_executing() -> Story:
    story = executing()
    story.cancel()
    return story


@stage
def canceling_abandoned() -> Story:
    story = canceling_executing()
    story.release()
    return story


@stage
def canceling_recovered() -> Story:
    story = canceling_abandoned()
    story.claim(recovery=True)
    story.reconcile(Finding.ABSENT)
    return story


@stage
def completed() -> Story:
    story = held()
    story.complete("result:1")
    return story


@stage
def failed() -> Story:
    story = held()
    story.fail()
    return story


@stage
def canceled() -> Story:
    story = canceling()
    story.acknowledge()
    return story


@stage
def stopped() -> Story:
    story = held()
    story.apply(complete(story.record, story.holder, None, story.now_ms, stopped=True))
    return story


Command = Callable[[Story], Decision[object]]


def command_of(name: str) -> Command:  # noqa: C901, PLR0911, PLR0912 - a table
    match name:
        case "claim":
            return lambda s: claim(s.record, ClaimRequest("worker-2", "other", 100), s.now_ms)
        case "recover":
            return lambda s: claim_for_recovery(s.record, ClaimRequest("worker-2", "other", 100), s.now_ms)
        case "renew":
            return lambda s: renew(s.record, s.holder, 100, s.now_ms)
        case "release":
            return lambda s: release(s.record, s.holder, s.now_ms)
        case "yield":
            return lambda s: yield_task(s.record, s.holder, s.now_ms + 50, "later", s.now_ms)
        case "reserve":
            return lambda s: reserve(s.record, s.holder, Reservation("r", 1, 1), s.now_ms)
        case "complete":
            return lambda s: complete(s.record, s.holder, "result:2", s.now_ms)
        case "fail":
            return lambda s: fail(s.record, s.holder, "why", s.now_ms)
        case "cancel":
            return lambda s: cancel(s.record, "", s.now_ms)
        case "acknowledge":
            return lambda s: acknowledge_cancellation(s.record, s.holder, s.now_ms)
        case "prepare":
            request = ActionRequest("new", "fixture@1", "inbox", HELLO)
            return lambda s: prepare(s.record, s.holder, request, s.now_ms)
        case "dispatch":
            return lambda s: begin_dispatch(s.record, s.holder, "send", "other", "fixture@1", s.now_ms)
        case "confirm":
            return lambda s: confirm(s.record, s.holder, "send", "result:1", s.now_ms)
        case "unknown":
            return lambda s: mark_unknown(s.record, s.holder, "send", s.now_ms)
        case "reconcile":
            evidence = Evidence(Finding.ABSENT, "proof")
            return lambda s: reconcile(
                s.record, s.holder, "send", s.action("send").prepared_hash, evidence, s.now_ms
            )
        case "append":
            return lambda s: append_event(s.record, s.holder, "e", "note", CanonicalJson("1"), s.now_ms)
        case "artifact":
            content = ArtifactContent("a", SHA, 1, "text/plain", 10)
            return lambda s: put_artifact(s.record, s.holder, content, s.now_ms)
        case "checkpoint":
            content = checkpoint_content("c", SHA, 1, 10)
            return lambda s: put_checkpoint(s.record, s.holder, "c", content, s.now_ms)
        case "withdraw":
            return lambda s: abort_dispatch(s.record, s.holder, "send", s.now_ms)
        case "held_extension":
            return lambda s: update_extension(s.record, "slot", CanonicalJson("1"), s.now_ms, holder=s.holder)
        case "extension":
            return lambda s: update_extension(s.record, "slot", CanonicalJson("1"), s.now_ms)
        case "decide":
            return lambda s: decide(
                s.record,
                Verdict("approval-gated", "reviewer", s.action("gated").prepared_hash, approved=True),
                s.now_ms,
            )
    raise AssertionError(name)
