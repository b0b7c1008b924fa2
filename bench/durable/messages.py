"""gRPC with no service behind it: `python -m bench.durable.messages`.

Every call on a stream is answered at once, by a message as long as that of the service. Event loop, collector
and channel arguments are those of `durable-service serve`; there is no handshake and no check.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc

from durable_service.client.worker_session import WORKER_PLANE
from sealwork.durable.v1 import record_service_pb2, task_pb2, worker_service_pb2
from service_common.channel_options import server_options
from service_common.event_loop import run, tune_garbage_collector

_SERVICE, _METHOD = WORKER_PLANE.method.removeprefix("/").split("/")
_NOW_SECONDS = 1_800_000_000


async def _answer_at_once(_: AsyncIterator[Any], context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    while (frame := await context.read()) is not grpc.aio.EOF:
        response = worker_service_pb2.WorkerServiceSessionResponse(seq=frame.seq, ack_seq=frame.seq)
        for item in frame.items:
            _fill(response.items.add().reply, item.call)
        await context.write(response)


def _fill(reply: worker_service_pb2.WorkerReply, call: worker_service_pb2.WorkerCall) -> None:
    answer = reply.append_event
    reply.id = answer.sequence = call.id
    answer.event_time.seconds = answer.status.update_time.seconds = _NOW_SECONDS
    answer.status.task_id = call.append_event.lease.task_id
    answer.status.state = task_pb2.TASK_STATE_RUNNING
    answer.status.revision = call.id


def frame_of(number: int, task_id: str, event_id: str) -> worker_service_pb2.WorkerServiceSessionRequest:
    """A frame with one entry for a journal."""
    frame = worker_service_pb2.WorkerServiceSessionRequest(seq=number)
    call = frame.items.add().call
    call.id = number
    entry: record_service_pb2.AppendEventRequest = call.append_event
    entry.lease.task_id, entry.lease.worker_id, entry.lease.fence = task_id, "worker", 1
    entry.event_id, entry.type, entry.data = event_id, "bench.step", b'{"step":1}'
    return frame


async def _serve() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin.fileno(), stop.set)
    server = grpc.aio.server(options=server_options())
    handler = grpc.stream_stream_rpc_method_handler(
        _answer_at_once,
        worker_service_pb2.WorkerServiceSessionRequest.FromString,
        worker_service_pb2.WorkerServiceSessionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    tune_garbage_collector()
    print(f"127.0.0.1:{port}", flush=True)
    await stop.wait()
    await server.stop(0)


if __name__ == "__main__":
    run(_serve())
