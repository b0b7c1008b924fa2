"""Step 4: a running job is cancelled."""

from examples.python.demo.failures import DemoFailure
from examples.python.demo.screen import quoted
from examples.python.demo.stage import Stage
from examples.python.demo.wire import now_ms

PROMPT = "Write a long story about a ship that is looking for its harbour."


async def play(stage: Stage) -> None:
    stage.screen.heading(4, "A running job is cancelled")
    caught = await stage.long_job(PROMPT)
    job, began = caught.job, caught.began_at_ms
    asked = now_ms()
    await job.cancel()
    confirmed = now_ms()
    result = await stage.wait(job.result(), "the device's word that it has stopped")
    arrived = now_ms()
    if result.disposition != "canceled":
        raise DemoFailure(
            f"The job was to be cancelled, and ended as {result.disposition}.",
            "The device was faster than the cancel: run the demo again.",
        )
    # Both numbers are the device's own: from its prompt log, and sealed into its result.
    stopped = began + result.ran.duration_ms
    stage.screen.quote(f"[site]{quoted(PROMPT)}[/]")
    stage.screen.moments(
        [
            (began - asked, f"[device]{result.runner_id}[/] begins to work on it"),
            (0, "the site calls [site]cancel()[/]"),
            (confirmed - asked, "the relay has confirmed it to the site"),
            (stopped - asked, "the device's work has stopped, by the device's own clock"),
            (arrived - asked, "its sealed “canceled” is open and verified at the site"),
        ]
    )
    job.acknowledge()
    stage.screen.say(
        f"From cancel() to the end of the work: about [number]{max(0, stopped - asked):.0f} ms[/]; "
        f"there and back: [number]{arrived - asked:.0f} ms[/]."
    )
    stage.results.append(f"a running job stopped {max(0, stopped - asked):.0f} ms after its cancel()")
