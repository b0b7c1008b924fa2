"""A client of the durable service: one principal, one connection for calls."""

from random import Random
from types import TracebackType
from typing import Self

from durable_service.client.approvals import Approvals
from durable_service.client.calls import Calls
from durable_service.client.operations import Operations
from durable_service.client.principal_key import PrincipalKey
from durable_service.client.record_reader import RecordReader
from durable_service.client.tasks import Tasks
from service_common.clocks import Clock, SystemClock
from service_common.connection import Connection
from service_common.signing import NoSigner
from service_common.unary_calls import CertifiedRequests, RequestSigner


class Client:
    """Calls the service as one principal. Use it as an async context manager.

    async with Client("127.0.0.1:7443", principal_id="reports", key=PrincipalKey.load(path)) as client:
        task, _ = await client.tasks.create(NewTask("report-7", driver=Driver("report", 1), input={"day": 7}))
        task, _ = await client.tasks.wait(task.id)

    Attributes:
        tasks: Create, read, cancel, wait, watch.
        approvals: What waits for this principal's actor, and deciding it.
        records: Journals, artifacts and checkpoints, for reading.
        operations: Counts and open outcomes, for operators.
    """

    def __init__(
        self,
        address: str | Connection,
        *,
        principal_id: str,
        key: PrincipalKey | None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Prepare; nothing is connected before the first call.

        Args:
            address: The service, `host:port` or `unix:PATH`; a `Connection` for TLS.
            principal_id: As the service's principals name it.
            key: Its key. The service has to know the public half. None when the client certificate of the
                connection names the principal.
            clock: Times everything.
            random: Jitter of repeats.

        Raises:
            ValueError: The address or the id cannot be used.
        """
        self.connection = Connection(address) if isinstance(address, str) else address
        self.principal_id = principal_id
        self.signer = NoSigner() if key is None else key.signer
        self.clock: Clock = clock or SystemClock()
        self.random = random or Random()  # noqa: S311 - jitter, not a secret
        requests = CertifiedRequests() if key is None else RequestSigner(principal_id, key.signer, self.clock)
        self.calls = Calls(self.connection.calls_channel, requests, clock=self.clock, random=self.random)
        self.tasks = Tasks(self.calls)
        self.approvals = Approvals(self.calls)
        self.records = RecordReader(self.calls)
        self.operations = Operations(self.calls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self.calls.close()
