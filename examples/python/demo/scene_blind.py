"""Step 3: what the relay could see of a job, beside what the two ends saw."""

import asyncio
from collections.abc import Iterator

from examples.python.demo import search
from examples.python.demo.failures import DemoFailure
from examples.python.demo.scene_prompts import ask
from examples.python.demo.screen import quoted
from examples.python.demo.stage import Stage
from relay_service.client.site import JobResult
from sealwork.relay.v1 import admin_pb2, job_pb2

PROMPT = "Name one reason to keep a secret. Answer in one short sentence."
_SHOWN_BYTES = 24


async def play(stage: Stage) -> None:
    stage.screen.heading(3, "What the relay could see of one job")
    job, result, _ = await ask(stage, PROMPT)
    seen = await _operators_view(stage, job.id)
    payload = (await stage.tap.beat(job.id, "sealed")).envelope
    sealed_result = (await stage.tap.beat(job.id, "result")).envelope
    if payload is None or sealed_result is None:
        raise DemoFailure("The stream of the site did not carry the envelopes.")
    stage.screen.say(
        "Left: all that the relay keeps of the job, as its operator gets it from ListJobs, "
        "and the envelopes as they passed through. Right: what the two ends have."
    )
    stage.screen.columns(
        ("", "the relay", "the site and the device"),
        _rows(seen, payload, sealed_result, result),
        ratios=(3, 11, 11),
    )
    # Before the job is settled: the relay still has all of it.
    await _search(stage, job.id)
    job.acknowledge()


async def _operators_view(stage: Stage, job_id: str) -> admin_pb2.JobSummary:
    for job in await stage.operator.jobs():
        if job.stub.id == job_id:
            return job
    raise DemoFailure("The relay does not list a job that has just been answered.")


def _rows(
    seen: admin_pb2.JobSummary,
    payload: job_pb2.SealedEnvelope,
    sealed_result: job_pb2.SealedEnvelope,
    result: JobResult,
) -> Iterator[tuple[str, str, str]]:
    stub = seen.stub
    same = "[quiet]the same[/]"
    yield "job", f"{quoted(stub.id[:8])}… of {quoted(seen.site_id)}", same
    yield "kind", f"{quoted(stub.kind)}, for {quoted(stub.owner)}", same
    yield "size", f"{_name(job_pb2.SizeClass.Name(stub.size_class))}", f"{len(PROMPT)} characters"
    yield "done by", quoted(seen.runner_id), f"{quoted(seen.runner_id)}, {quoted(result.ran.model)}"
    yield "prompt", _bytes(payload.ciphertext), f"[site]{quoted(PROMPT)}[/]"
    yield "answer", _bytes(sealed_result.ciphertext), f"[device]{quoted(result.text, 160)}[/]"
    yield (
        "outcome",
        f"{_name(job_pb2.JobState.Name(seen.state))}, {result.disposition}",
        f"{result.disposition}, signed",
    )


async def _search(stage: Stage, job_id: str) -> None:
    pieces = search.pieces_of(
        text for exchange in stage.exchanges for text in (exchange.prompt, exchange.answer)
    )
    control = job_id.encode()
    with stage.screen.waiting("searching the relay"):
        findings = await asyncio.to_thread(_look_everywhere, stage, pieces, control)
    stage.screen.say(
        f"Is any of it there all the same? A search for {len(pieces)} pieces of the prompts and answers "
        "so far, and for the job's id, which has to be found:"
    )
    stage.screen.columns(
        ("the relay's", "bytes", "job id", "prompts and answers"),
        (
            (
                finding.place,
                f"{finding.searched_bytes:,}",
                "found" if finding.control_hits else "[quiet]not there[/]",
                _verdict(finding),
            )
            for finding in findings
        ),
    )
    if any(finding.content_hits for finding in findings):
        raise DemoFailure("A piece of a prompt or an answer was found where it must not be.")
    stage.results.append("no word of them in the relay's memory, log or traffic")


def _look_everywhere(stage: Stage, pieces: list[bytes], control: bytes) -> list[search.Finding]:
    traffic = [bytes(stage.tap.sent), bytes(stage.tap.received)]
    log = [stage.children.log_of(stage.relay).read_bytes()]
    findings = [
        search.search("traffic with the site", traffic, pieces, control),
        search.search("log", log, pieces, control),
    ]
    try:
        memory = search.search("memory of the process", search.memory_of(stage.relay.pid), pieces, control)
    except search.NotReadableError:
        return [*findings, search.Finding("memory (not readable on this system)", 0, 0, 0)]
    return [*findings, memory]


def _verdict(finding: search.Finding) -> str:
    if not finding.searched_bytes:
        return "[quiet]not searched[/]"
    return f"[bad]{finding.content_hits} found[/]" if finding.content_hits else "[good]0 found[/]"


def _bytes(ciphertext: bytes) -> str:
    return f"[relay]{ciphertext[:_SHOWN_BYTES].hex(' ')} …[/] ({len(ciphertext)} bytes)"


def _name(value: str) -> str:
    return value.rpartition("_")[2].lower()
