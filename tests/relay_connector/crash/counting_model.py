"""A model that counts: it writes down that it begins, waits for leave, and writes down that it is done.

    python counting_model.py BOOK GATES

Standard library alone, since the device starts it anew for every prompt. Its prompt is a word; it goes on
once there is a file of that name among the gates.
"""

import os
import sys
import time


def write_down(book: str, line: str) -> None:
    descriptor = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


def main() -> None:
    book, gates = sys.argv[1:]
    prompt = sys.stdin.read().strip()
    write_down(book, f"begun {prompt}")
    parent = os.getppid()
    while not os.access(f"{gates}/{prompt}", os.F_OK):
        if os.getppid() != parent:
            # The device is gone, and nobody would read the answer.
            return
        time.sleep(0.01)
    print(f"the answer to {prompt}", flush=True)
    write_down(book, f"done {prompt}")


if __name__ == "__main__":
    main()
