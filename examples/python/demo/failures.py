"""How the demo tells that something went wrong."""

from collections.abc import Sequence

KEEP = "To keep all logs, run it as: .venv/bin/python examples/python/demo --keep"


class DemoFailure(Exception):  # noqa: N818 - it is explained to a person, not handled by a program
    """A step did not work.

    Attributes:
        what: What went wrong, in one sentence.
        advice: What to try.
        output: The last lines of the process that it is about.
        process: Name of that process.
    """

    def __init__(self, what: str, advice: str = "", *, process: str = "", output: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice
        self.process = process
        self.output = tuple(output)
