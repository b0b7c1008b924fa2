"""Who is calling, for the code that serves the call."""

from contextvars import ContextVar
from typing import Final

_CALLER: Final[ContextVar[str]] = ContextVar("sealwork_caller")


def current_caller() -> str:
    """Return the id of the caller that signed the request being served.

    Raises:
        LookupError: The method is open to callers without a signature, or no request is being served.
    """
    return _CALLER.get()


def bind_caller(caller: str) -> None:
    """Name the caller for the rest of the running task.

    gRPC serves every call in a task of its own, so nothing has to be undone.
    """
    _CALLER.set(caller)
