"""What the operator of the relay can see: calls of the admin plane, signed with the operator's key."""

from collections.abc import Sequence
from random import Random
from typing import Final

from relay_service.client.calls import Calls, Method, RequestSigner
from relay_service.client.connection import Connection
from relay_service.client.keys import Keys
from sealwork.relay.v1 import admin_pb2
from service_common.clocks import SystemClock

_ADMIN: Final = "/sealwork.relay.v1.RelayAdminService/"
_LIST_JOBS: Final = Method(_ADMIN + "ListJobs", admin_pb2.ListJobsRequest, admin_pb2.ListJobsResponse)
_LIST_DAEMONS: Final = Method(
    _ADMIN + "ListDaemons", admin_pb2.ListDaemonsRequest, admin_pb2.ListDaemonsResponse
)
# The name that the relay knows its operator by.
_CALLER: Final = "operator"


class Operator:
    """Whoever runs the relay."""

    def __init__(self, address: str, keys: Keys) -> None:
        clock = SystemClock()
        self._calls = Calls(
            Connection(address).calls_channel,
            RequestSigner(_CALLER, keys.signer, clock),
            clock=clock,
            random=Random(),
        )

    async def jobs(self) -> Sequence[admin_pb2.JobSummary]:
        """Return all jobs that the relay holds."""
        return (await self._calls.call(_LIST_JOBS, admin_pb2.ListJobsRequest())).jobs

    async def daemons(self) -> Sequence[admin_pb2.DaemonSummary]:
        """Return all devices of the projection, with what the relay knows of each."""
        return (await self._calls.call(_LIST_DAEMONS, admin_pb2.ListDaemonsRequest())).daemons

    async def close(self) -> None:
        await self._calls.close()
