"""Client library of the relay: keys, envelopes, and the two parties that use them.

The names below are loaded when they are first asked for: who only reads a key file need not wait for gRPC.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relay_service.client.blocking import BlockingSite
    from relay_service.client.connection import Connection
    from relay_service.client.daemon import Daemon, JobContext
    from relay_service.client.errors import (
        JobAbandonedError,
        JobEndedError,
        JobEndReason,
        JobFailedError,
        RelayError,
        ResultRefusedError,
        SiteClosedError,
    )
    from relay_service.client.grants import Grant, sign_grant, verify_grant
    from relay_service.client.keys import Keys
    from relay_service.client.outcomes import CanceledOutcome, ErrorOutcome, OkOutcome
    from relay_service.client.payloads import ChatMessage, ChatPayload, GeneratePayload
    from relay_service.client.site import HandOver, JobHandle, JobResult, Site

__all__ = [
    "BlockingSite",
    "CanceledOutcome",
    "ChatMessage",
    "ChatPayload",
    "Connection",
    "Daemon",
    "ErrorOutcome",
    "GeneratePayload",
    "Grant",
    "HandOver",
    "JobAbandonedError",
    "JobContext",
    "JobEndReason",
    "JobEndedError",
    "JobFailedError",
    "JobHandle",
    "JobResult",
    "Keys",
    "OkOutcome",
    "RelayError",
    "ResultRefusedError",
    "Site",
    "SiteClosedError",
    "sign_grant",
    "verify_grant",
]

_MODULES = {
    "blocking": ("BlockingSite",),
    "connection": ("Connection",),
    "daemon": ("Daemon", "JobContext"),
    "errors": (
        "JobAbandonedError",
        "JobEndReason",
        "JobEndedError",
        "JobFailedError",
        "RelayError",
        "ResultRefusedError",
        "SiteClosedError",
    ),
    "grants": ("Grant", "sign_grant", "verify_grant"),
    "keys": ("Keys",),
    "outcomes": ("CanceledOutcome", "ErrorOutcome", "OkOutcome"),
    "payloads": ("ChatMessage", "ChatPayload", "GeneratePayload"),
    "site": ("HandOver", "JobHandle", "JobResult", "Site"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
