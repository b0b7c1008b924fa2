"""Connectors: how a worker carries out an action, and how it finds out whether one was carried out."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from durable_service.client.connectors.base import Absent, Connector, Finding, Found, Unsettled
    from durable_service.client.connectors.http import HttpConnector
    from durable_service.client.connectors.lease_binding import (
        AnyConnector,
        RecordingConnector,
        SettlingConnector,
    )
    from durable_service.client.connectors.mongodb_document import MongoDocumentConnector

__all__ = [
    "Absent",
    "AnyConnector",
    "Connector",
    "Finding",
    "Found",
    "HttpConnector",
    "MongoDocumentConnector",
    "RecordingConnector",
    "SettlingConnector",
    "Unsettled",
]

_HOMES = {
    **dict.fromkeys(("Absent", "Connector", "Finding", "Found", "Unsettled"), "base"),
    **dict.fromkeys(("AnyConnector", "RecordingConnector", "SettlingConnector"), "lease_binding"),
    "HttpConnector": "http",
    "MongoDocumentConnector": "mongodb_document",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
