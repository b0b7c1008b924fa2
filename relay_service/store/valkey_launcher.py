"""Becomes another program that ends when the process that asked for it ends.

Run as a file of its own, not imported: `python -I -S valkey_launcher.py PARENT_ID PROGRAM ARGUMENT...`.
Asking for the signal between fork and exec would run Python in a copy of a process with many threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent_id, program = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        # The parent may have ended before it was asked to tell.
        if os.getppid() != parent_id:
            sys.exit("the process that asked for the server is gone")
    os.execv(program, sys.argv[2:])  # noqa: S606 - replacing this process is the purpose


if __name__ == "__main__":
    main()
