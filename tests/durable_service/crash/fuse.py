"""Where a process dies: at a named point, or at the n-th point that it comes by."""

import os
import signal
import sys
from dataclasses import dataclass


@dataclass
class Fuse:
    """Kills this very process without a warning; no code of a product has a hook for it.

    Attributes:
        point: A name, or empty for whichever point is reached.
        left: How often it has to be reached; 0 is never.
    """

    point: str = ""
    left: int = 0

    def reach(self, point: str) -> None:
        if self.left == 0 or (self.point and self.point != point):
            return
        self.left -= 1
        if self.left == 0:
            say("dies", point)
            os.kill(os.getpid(), signal.SIGKILL)


def say(*words: object) -> None:
    """One whole line in one write: the next step of this process may be its last."""
    sys.stdout.flush()
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())
