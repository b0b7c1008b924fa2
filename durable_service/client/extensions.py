"""Extensions: named slots of a task that its handler may write."""

from durable_service.client.json_text import encode_json
from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.methods import UPDATE_EXTENSION
from durable_service.core.canonical_json import JsonValue
from sealwork.durable.v1 import admin_service_pb2 as pb


class Extensions:
    """The extensions of one task, written under one lease. What was there at the claim is in `task`.

    Each method raises `LeaseLostError` when the task is no longer this worker's, and `DurableError` for
    another refusal.
    """

    def __init__(self, calls: LeaseCalls) -> None:
        """Write under the lease of `calls`."""
        self._calls = calls

    async def put(self, name: str, value: JsonValue) -> int:
        """Write a value, and return the revision of the slot."""
        request = pb.UpdateExtensionRequest(
            task_id=self._calls.held.task_id, name=name, value=encode_json(value)
        )
        return (await self._calls.settle(UPDATE_EXTENSION, request)).extension.revision

    async def remove(self, name: str) -> None:
        """Remove a slot; one that is not there is no error."""
        request = pb.UpdateExtensionRequest(task_id=self._calls.held.task_id, name=name)
        await self._calls.settle(UPDATE_EXTENSION, request)
