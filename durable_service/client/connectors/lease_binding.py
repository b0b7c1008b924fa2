"""What a connector may have beyond its two methods: the records of the task, and a word when all is safe."""

import asyncio
import logging
from typing import Final, Protocol, TypeAlias, runtime_checkable

from durable_service.client.actions import Action
from durable_service.client.connectors.base import Connector
from durable_service.client.records import Records

logger = logging.getLogger("sealwork.client")

SETTLED_SECONDS: Final = 5.0


@runtime_checkable
class RecordingConnector(Protocol):
    """A connector that keeps what it brings beside the task: it makes one of itself for each lease."""

    @property
    def version(self) -> str:
        """Bound into every action, as that of a `Connector`."""

    def bind(self, records: Records) -> Connector:
        """Return a connector for the task of these records.

        Asked before each dispatch and each look-up. Under a lease to recover, artifacts and events may be
        written, and no checkpoints.
        """


@runtime_checkable
class SettlingConnector(Protocol):
    """A connector whose remote side keeps a result until it hears that nobody needs it any more."""

    async def settled(self, action: Action) -> None:
        """Called after the service has confirmed an action, by a dispatch or by evidence, and never before.

        It is given five seconds, and what it raises is logged alone: the action is confirmed already. A
        worker that dies before this never makes up for it, so the remote side has to forget by itself too.
        """


AnyConnector: TypeAlias = Connector | RecordingConnector


def bound_to(connector: AnyConnector, records: Records) -> Connector:
    """Return the connector for the task of these records."""
    return connector.bind(records) if isinstance(connector, RecordingConnector) else connector


async def tell_settled(connector: Connector, action: Action) -> None:
    """Tell a connector that cares that its action is confirmed."""
    if not isinstance(connector, SettlingConnector):
        return
    try:
        async with asyncio.timeout(SETTLED_SECONDS):
            await connector.settled(action)
    except Exception as error:  # noqa: BLE001 - whatever a connector raises: its result is safe
        # Without the text: it might quote what the action works on.
        logger.info("the far side of action %s was not told: %s", action.id, type(error).__name__)
