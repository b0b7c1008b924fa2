"""A server process to be ended by signals: `python drain_child.py LOOP ENDING`.

It prints `ready PORT` when it serves and `ending` when it was told to end.
"""

import asyncio
import sys
import time
from typing import Any

import grpc

from service_common import event_loop
from service_common.call_interceptor import CallInterceptor
from service_common.call_metrics import CallMetrics
from service_common.clocks import SystemClock
from service_common.drain import Drain
from service_common.health import ServingState
from service_common.listeners import Listener, bind
from service_common.method_table import HEALTH_METHODS, MethodTable, ServicePolicy
from service_common.metrics import Metrics
from service_common.server import add_health, build_server

GRACE_MS = 60_000


async def serve(ending: str) -> None:
    clock = SystemClock()
    state = ServingState(["t.S"])
    state.set_ready("t.S", ready=True)
    drain = Drain(clock, state, grace_ms=GRACE_MS)

    async def hold(request: bytes, context: object) -> bytes:
        """Answer only when the end has begun."""
        print("held", flush=True)
        await drain.begun()
        return b"answered"

    async def session(requests: object, context: object) -> None:
        drain.refuse_if_draining()

    async def end() -> None:
        print("ending", flush=True)
        if ending == "hanging":
            await asyncio.Event().wait()
        if ending == "stuck":
            time.sleep(GRACE_MS)  # noqa: ASYNC251 - the loop is to stand still
        if ending == "released":
            await released.wait()

    released = asyncio.Event()

    async def release(request: bytes, context: object) -> bytes:
        released.set()
        return b""

    drain.register(end)
    table = MethodTable(
        services={"t.S": ServicePolicy("test.sealwork.dev", None)},
        unauthenticated=HEALTH_METHODS | {"/t.S/Hold", "/t.S/Session", "/t.S/Release"},
    )
    server = build_server(CallInterceptor(table, CallMetrics(Metrics()), clock))
    handlers: dict[str, Any] = {
        "Hold": grpc.unary_unary_rpc_method_handler(hold),
        "Release": grpc.unary_unary_rpc_method_handler(release),
        "Session": grpc.stream_stream_rpc_method_handler(session),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.S", handlers),))
    add_health(server, state)
    port = bind(server, Listener("127.0.0.1:0", dev=True))
    await server.start()
    drain.install_signal_handlers()
    print(f"ready {port}", flush=True)
    await drain.run(server)
    print("stopped", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "asyncio":
        sys.modules["uvloop"] = None  # type: ignore[assignment]
    event_loop.run(serve(sys.argv[2]))
