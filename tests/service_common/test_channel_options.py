from pathlib import Path
from typing import Any

import grpc
import pytest

from service_common.channel_options import (
    ChannelOptions,
    calls_channel_options,
    server_options,
    session_channel_options,
)


def test_the_arguments_of_a_server_are_spelt_and_set_so() -> None:
    assert dict(server_options()) == {
        "grpc.keepalive_time_ms": 30_000,
        "grpc.keepalive_timeout_ms": 10_000,
        "grpc.http2.ping_timeout_ms": 10_000,
        "grpc.http2.min_ping_interval_without_data_ms": 10_000,
        "grpc.http2.max_ping_strikes": 2,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.max_connection_age_ms": 3_600_000,
        "grpc.max_connection_age_grace_ms": 300_000,
        "grpc.max_concurrent_streams": 1_000,
        "grpc.max_receive_message_length": 8_388_608,
        "grpc.so_reuseport": 0,
        "grpc.enable_channelz": 0,
    }


def test_what_a_server_may_choose() -> None:
    options = dict(server_options(so_reuseport=True, channelz=True, max_receive_bytes=1_024))
    assert options["grpc.so_reuseport"] == 1
    assert options["grpc.enable_channelz"] == 1
    assert options["grpc.max_receive_message_length"] == 1_024


def test_the_arguments_of_a_session_channel() -> None:
    assert dict(session_channel_options()) == {
        "grpc.keepalive_time_ms": 30_000,
        "grpc.keepalive_timeout_ms": 10_000,
        "grpc.http2.ping_timeout_ms": 10_000,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.keepalive_permit_without_calls": 0,
        "grpc.max_reconnect_backoff_ms": 10_000,
        "grpc.max_receive_message_length": 8_388_608,
        "grpc.use_local_subchannel_pool": 1,
        "grpc.enable_retries": 0,
    }


def test_neither_channel_repeats_a_call_whose_nonce_was_used() -> None:
    assert calls_channel_options() == session_channel_options()
    assert dict(calls_channel_options())["grpc.enable_retries"] == 0


@pytest.mark.parametrize("options", [server_options(), session_channel_options(), calls_channel_options()])
def test_the_installed_grpc_knows_every_argument(options: ChannelOptions) -> None:
    (extension,) = Path(grpc.__file__).parent.glob("_cython/cygrpc*.so")
    library = extension.read_bytes()
    assert b"grpc.no_such_argument" not in library
    assert [name for name, _ in options if name.encode() not in library] == []


async def test_a_call_is_sent_once_whatever_its_end() -> None:
    attempts = 0

    async def away(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        nonlocal attempts
        attempts += 1
        await context.abort(grpc.StatusCode.UNAVAILABLE)

    server = grpc.aio.server()
    handlers: dict[str, Any] = {"Away": grpc.unary_unary_rpc_method_handler(away)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.S", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=calls_channel_options()) as channel:
            call: Any = channel.unary_unary("/t.S/Away")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"")
    finally:
        await server.stop(None)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert attempts == 1
