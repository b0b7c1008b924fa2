"""A stand-in for a language model: reads a prompt on standard input and writes an answer to standard output.

The answer depends on the prompt alone. With --seconds it is written word by word over that time, so that a
run can be watched, cancelled or cut off.

    echo "What is a relay?" | python echo_model.py --seconds 5
"""

import argparse
import os
import signal
import sys
import time

QUOTED_WORDS = 12
FILLER = "It took its time over every one of them and wrote this answer one word after another."


def answer(prompt: str) -> str:
    """Return the answer to a prompt."""
    words = prompt.split()
    if not words:
        return "There was nothing to answer."
    quoted = " ".join(words[:QUOTED_WORDS])
    ellipsis = " …" if len(words) > QUOTED_WORDS else ""
    count = "1 word" if len(words) == 1 else f"{len(words)} words"
    return f"You wrote {count}, beginning: “{quoted}{ellipsis}” {FILLER}"


def write_slowly(text: str, seconds: float) -> None:
    """Write the words evenly over the time, each as soon as its moment has come."""
    words = text.split(" ")
    started = time.monotonic()
    for number, word in enumerate(words):
        due = started + seconds * number / len(words)
        time.sleep(max(0.0, due - time.monotonic()))
        sys.stdout.write(word if number == 0 else f" {word}")
        sys.stdout.flush()
    time.sleep(max(0.0, started + seconds - time.monotonic()))
    sys.stdout.write("\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Answer the prompt on standard input, deterministically.")
    parser.add_argument("--seconds", type=float, default=0.0, help="spread the answer over so many seconds")
    parser.add_argument(
        "--ignore-terminate", action="store_true", help="ignore SIGTERM, as a program that hangs would"
    )
    options = parser.parse_args()
    if options.ignore_terminate:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    try:
        write_slowly(answer(prompt), options.seconds)
    except BrokenPipeError:
        # Whoever asked is gone. Python would complain once more while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
