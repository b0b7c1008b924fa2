"""What the operator of the relay can see, asked over the listener that is for operators alone."""

from collections.abc import Sequence

import grpc.aio

from examples.python.demo.failures import KEEP, DemoFailure
from sealwork.relay.v1 import admin_pb2, admin_pb2_grpc

_SECONDS = 10.0
_METADATA = (("sealwork-protocol", "1"),)


async def list_jobs(address: str) -> Sequence[admin_pb2.JobSummary]:
    """Return all jobs that the relay holds."""
    async with grpc.aio.insecure_channel(address) as channel:
        admin = admin_pb2_grpc.RelayAdminServiceStub(channel)
        try:
            answer = await admin.ListJobs(admin_pb2.ListJobsRequest(), timeout=_SECONDS, metadata=_METADATA)
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from None
    return answer.jobs


async def list_daemons(address: str) -> Sequence[admin_pb2.DaemonSummary]:
    """Return all devices that the relay knows of."""
    async with grpc.aio.insecure_channel(address) as channel:
        admin = admin_pb2_grpc.RelayAdminServiceStub(channel)
        try:
            answer = await admin.ListDaemons(
                admin_pb2.ListDaemonsRequest(), timeout=_SECONDS, metadata=_METADATA
            )
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from None
    return answer.daemons


def _refused(error: grpc.aio.AioRpcError) -> DemoFailure:
    return DemoFailure(f"The relay did not answer its operator: {error.details()}", KEEP)
