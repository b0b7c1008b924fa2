"""A device in a process of its own, to be killed: `python daemon_child.py ADDRESS RUNNER_ID`.

It prints `holding JOB_ID LEASE_ID` for each payload that it was handed and never finishes a job.
"""

import asyncio
import sys

import grpc.aio

from sealwork.relay.v1 import daemon_plane_pb2
from sealwork.session.v1 import session_pb2
from tests.relay_service.raw_client import RawDaemon
from tests.relay_service.relay_fixture import keys_of, ref


async def hold(address: str, runner_id: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        daemon = RawDaemon(channel, runner_id, keys_of(runner_id), lambda: 0)
        inline = [session_pb2.CAPABILITY_INLINE_PAYLOAD]
        stream = await daemon.connect(limit=10, process_id="child", capabilities=inline)
        print("ready", flush=True)
        while True:
            granted = await stream.next("granted", timeout=60)
            await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[ref(granted)]))
            ready = await stream.next("payload_ready", timeout=60)
            assert ready.HasField("envelope")
            print("holding", ready.lease.job_id, ready.lease.lease_id, flush=True)


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], sys.argv[2]))
