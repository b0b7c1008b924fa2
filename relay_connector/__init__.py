"""A connector of durable tasks that asks the user's own model through the relay.

It knows both services by their client libraries alone. The names below are loaded when they are first asked
for.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relay_connector.answer import Answer, NoAnswerError, WhyNone, artifact_id_of, read_answer
    from relay_connector.connector import RelayConnector
    from relay_connector.question import QuestionError
    from relay_connector.waiting import OutcomeOpenError

__all__ = [
    "Answer",
    "NoAnswerError",
    "OutcomeOpenError",
    "QuestionError",
    "RelayConnector",
    "WhyNone",
    "artifact_id_of",
    "read_answer",
]

_MODULES = {
    "answer": ("Answer", "NoAnswerError", "WhyNone", "artifact_id_of", "read_answer"),
    "connector": ("RelayConnector",),
    "question": ("QuestionError",),
    "waiting": ("OutcomeOpenError",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
