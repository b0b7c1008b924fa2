"""The work that travels in a job: a prompt nobody has seen before, and the one right answer to it."""

from base64 import b64encode
from random import Random


def new_prompt(size: int, random: Random) -> str:
    """A prompt of this many ASCII characters, unlike any other."""
    return b64encode(random.randbytes(size * 3 // 4 + 3)).decode()[:size]


def answer_to(prompt: str) -> str:
    """What the device must answer: as long as the prompt, and not to be had without having read all of it."""
    return prompt[::-1]
