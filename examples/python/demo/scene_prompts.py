"""Step 2: prompts travel sealed, and come back answered."""

import asyncio

from examples.python.demo.scenery import OWNER, SITE_ID
from examples.python.demo.screen import quoted
from examples.python.demo.stage import Exchange, Stage
from examples.python.demo.wire import now_ms
from relay_service.client.payloads import GeneratePayload
from relay_service.client.site import JobHandle, JobResult

PROMPTS = (
    "What is a lighthouse for? Answer in one short sentence.",
    "Why does bread rise in the oven? Answer in one short sentence.",
)


async def ask(stage: Stage, prompt: str) -> tuple[JobHandle, JobResult, list[tuple[str, float]]]:
    """Enqueue a prompt and await its answer; returns the milliseconds of each beat beside it."""
    started = now_ms()
    job = await stage.site.enqueue(GeneratePayload(prompt), owner=OWNER, audience="private")
    result = await stage.wait(job.result(), "an answer")
    answered = now_ms()
    claimed = await stage.tap.beat(job.id, "please-seal")
    running = await stage.running_at(job, result.runner_id)
    beats = [
        ("enqueued", (await stage.tap.beat(job.id, "enqueued")).at_ms),
        ("claimed", claimed.at_ms),
        ("sealed", (await stage.tap.beat(job.id, "sealed")).at_ms),
        # The device's clock has whole milliseconds, rounded down.
        ("running", max(running, claimed.at_ms)),
        ("answered", answered),
    ]
    stage.exchanges.append(Exchange(job.id, prompt, result.text))
    return job, result, [(name, at_ms - started) for name, at_ms in beats]


async def play(stage: Stage) -> None:
    stage.screen.heading(2, "Two prompts: sealed, routed, answered")
    stage.screen.say(
        f"The site [site]{SITE_ID}[/] asks for {OWNER}, twice at the same time. It seals each prompt "
        "to the one device that claimed it; the answer comes back sealed to the site."
    )
    answers = await asyncio.gather(*(ask(stage, prompt) for prompt in PROMPTS))
    for prompt, (job, result, beats) in zip(PROMPTS, answers, strict=True):
        stage.screen.say("")
        stage.screen.facts(
            [
                ("asked", f"[site]{quoted(prompt)}[/]"),
                ("answer", f"[device]{quoted(result.text)}[/]"),
                ("device", f"{result.runner_id}, {quoted(result.ran.model)}"),
                ("ms", " → ".join(f"{name} [number]{at_ms:.0f}[/]" for name, at_ms in beats)),
            ]
        )
        job.acknowledge()
    stage.results.append(f"{len(PROMPTS)} prompts sealed, routed and answered")
