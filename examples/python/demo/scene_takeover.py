"""Step 5: a device dies in the middle of a job, and the other one finishes it."""

from examples.python.demo.failures import DemoFailure
from examples.python.demo.scenery import LEASE_SECONDS
from examples.python.demo.screen import quoted
from examples.python.demo.stage import Exchange, LongJob, Stage
from examples.python.demo.wire import now_ms
from relay_service.client.site import JobResult

PROMPT = "Tell me in some detail what the moon does to the sea."


async def play(stage: Stage) -> None:
    stage.screen.heading(5, "A device dies in the middle of a job")
    first = await stage.long_job(PROMPT)
    job = first.job
    device = stage.devices[first.runner_id]
    killed = now_ms()
    device.kill()
    result = await stage.wait(job.result(), f"the other device, after the lease of {LEASE_SECONDS} s")
    answered = now_ms()
    if result.runner_id == first.runner_id:
        raise DemoFailure(
            f"{first.runner_id} finished the job before it was killed.",
            "The device was faster than the demo: run it again.",
        )
    stage.screen.quote(f"[site]{quoted(PROMPT)}[/]")
    stage.screen.moments(await _time_line(stage, first, result, killed, answered))
    stage.screen.quote(f"[device]{quoted(result.text, 240)}[/]")
    stage.screen.say(
        "[quiet]The lease of the dead device counts for nothing any more: had it come back with an "
        "answer, the relay would have refused it as stale.[/]"
    )
    job.acknowledge()
    stage.exchanges.append(Exchange(job.id, PROMPT, result.text))
    stage.results.append(f"a job outlived the device that ran it, {answered - killed:,.0f} ms after SIGKILL")


async def _time_line(
    stage: Stage, first: LongJob, result: JobResult, killed: float, answered: float
) -> list[tuple[float, str]]:
    job = first.job
    requeued = await stage.tap.beat(job.id, "requeued")
    claimed = await stage.tap.beat(job.id, "please-seal", 2)
    sealed = await stage.tap.beat(job.id, "sealed", 2)
    running = await stage.running_at(job, result.runner_id)
    moments = [
        (first.began_at_ms, f"[device]{first.runner_id}[/] begins to work on it"),
        (killed, f"[bad]SIGKILL[/] for the daemon of {first.runner_id}"),
        (requeued.at_ms, f"its lease of {LEASE_SECONDS} s has run out: the job is back in the queue"),
        (claimed.at_ms, f"[device]{claimed.runner_id}[/] holds it"),
        (sealed.at_ms, f"the site has sealed the prompt again, to {claimed.runner_id}"),
        (max(running, claimed.at_ms), f"{claimed.runner_id} begins to work on it"),
        (answered, "answered, opened and verified at the site"),
    ]
    return [(at_ms - killed, what) for at_ms, what in moments]
