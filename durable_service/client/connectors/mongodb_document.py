"""Effects in MongoDB: one document for each action, written under its idempotency key."""

from typing import Any, Final, Protocol

from durable_service.client.actions import Action
from durable_service.client.connectors.base import Finding, Found, Unsettled
from durable_service.client.errors import NotSentError
from durable_service.client.stop_signal import StopSignal

VERSION: Final = "mongodb-document@1"
ARGS_BYTES: Final = 1_000_000


class Collection(Protocol):
    """What is used of `pymongo.asynchronous.collection.AsyncCollection`."""

    async def insert_one(self, document: Any, /) -> Any: ...

    async def find_one(self, query: Any, /) -> Any: ...


class BindingError(Exception):
    """The action is not one of this connector, or the document of its key is another action's."""


class MongoDocumentConnector:
    """Writes an action's arguments as a document, once.

    The collection belongs to the caller and has to be set to majority reads and journaled majority writes. A
    missing document is never taken for a proof of absence: an earlier request may still arrive.

    Attributes:
        version: `mongodb-document@1`.
        destination: Bound into the actions.
    """

    def __init__(self, collection: Collection, *, destination: str) -> None:
        """Write into one collection, under the name that actions know it by."""
        self.version = VERSION
        self.destination = destination
        self._collection = collection

    async def dispatch(self, action: Action, signal: StopSignal) -> str:
        """Write the document and read it back.

        Raises:
            NotSentError: The action is not one of this connector, work should stop, or the arguments have no
                form in the database.
            BindingError: The key holds another action.
            Exception: Whatever the database raises.
        """
        if (problem := self._problem_of(action)) is not None:
            raise NotSentError(problem)
        if signal.is_set:
            raise NotSentError("work for the task should stop")
        await self._insert(action)
        document = await self._collection.find_one({"_id": action.idempotency_key})
        if document is None or document.get("preparedHash") != action.prepared_hash:
            raise BindingError("the document of this key is another action's")
        return f"mongodb-document:{action.idempotency_key}"

    async def reconcile(self, action: Action) -> Finding:
        """Look for the document.

        Raises:
            BindingError: The action is not one of this connector.
            Exception: Whatever the database raises.
        """
        if (problem := self._problem_of(action)) is not None:
            raise BindingError(problem)
        document = await self._collection.find_one({"_id": action.idempotency_key})
        if document is not None and document.get("preparedHash") == action.prepared_hash:
            return Found(
                f"mongodb-document:{action.idempotency_key}", f"mongodb-receipt:{action.idempotency_key}"
            )
        return Unsettled(f"mongodb-lookup:{action.idempotency_key}")

    async def _insert(self, action: Action) -> None:
        document = {
            "_id": action.idempotency_key,
            "preparedHash": action.prepared_hash,
            "value": action.args,
        }
        try:
            # Not an upsert: operators of updates take no names that begin with a dollar sign.
            await self._collection.insert_one(document)
        except Exception as error:
            match type(error).__name__:
                case "InvalidDocument":
                    # A member name with a NUL: it is noticed before anything is sent.
                    raise NotSentError("the arguments have no form in the database") from error
                case "DuplicateKeyError":
                    # It is there already, or two race; reading back tells whose document it is.
                    return
            raise

    def _problem_of(self, action: Action) -> str | None:
        if action.destination != self.destination or action.connector_version != self.version:
            return "the action is for another destination or connector"
        if len(action.args_json) > ARGS_BYTES:
            return f"the arguments have more than {ARGS_BYTES} bytes"
        return None
