"""Has everything loaded, and forks a process for each line of its input. Nothing of gRPC runs in it.

A hundred processes are killed here for one reason or another; loading everything anew each time would take
minutes. Each is a process of its own all the same, with its own channels, files and end.
"""

import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import traceback
from typing import Any

from tests.durable_service.crash import lives

# Loaded here rather than in each child.
_USED = (
    "durable_service.cli",
    "durable_service.client.worker",
    "durable_service.commands.serve",
    "durable_service.process",
)
# Those of an extra that may not be installed.
_USED_IF_THERE = {"psycopg": "durable_service.store.postgres", "pymongo": "durable_service.store.mongo"}


def main() -> None:
    for name in _USED:
        importlib.import_module(name)
    for needed, name in _USED_IF_THERE.items():
        if importlib.util.find_spec(needed) is not None:
            importlib.import_module(name)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    print("ready", flush=True)
    rest = b""
    while True:
        readable, _, _ = select.select([0, reading], [], [])
        if reading in readable:
            os.read(reading, 1_000)
        reap()
        if 0 in readable:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                begin(json.loads(line))


def begin(options: dict[str, Any]) -> None:
    pid = os.fork()
    if pid:
        print("born", options["id"], pid, flush=True)
        return
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        output = os.open(options["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        lives.LIVES[options["life"]](options)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        print("ended", pid, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
