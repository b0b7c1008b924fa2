import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from service_common.channel_options import server_options
from service_common.errors import SettingsError
from service_common.listeners import Listener, bind, check_listener, is_loopback


@pytest.fixture
async def server() -> AsyncIterator[grpc.aio.Server]:
    server = grpc.aio.server(options=server_options())
    yield server
    await server.stop(None)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:0",
        "127.9.8.7:7443",
        "[::1]:7443",
        "localhost:7443",
        "unix:/run/sealwork/relay.sock",
        "unix:relay.sock",
        "unix-abstract:relay",
    ],
)
def test_loopback_is_served_in_plaintext(address: str) -> None:
    assert is_loopback(address)
    check_listener(Listener(address))
    check_listener(Listener(address, dev=True))


OFF_LOOPBACK = [
    "0.0.0.0:7443",
    "[::]:7443",
    "10.0.0.1:7443",
    "relay.example:7443",
    "localhost.example:7443",
    "[::ffff:10.0.0.1]:7443",
    "[fe80::1]:7443",
]


@pytest.mark.parametrize("address", OFF_LOOPBACK)
def test_plaintext_off_loopback_is_refused_with_what_to_do(address: str) -> None:
    assert not is_loopback(address)
    with pytest.raises(SettingsError) as caught:
        check_listener(Listener(address))
    text = str(caught.value)
    assert "plaintext" in text
    assert address in text
    assert "certificate" in text
    assert "--behind-mesh" in text
    assert "127.0.0.1" in text


@pytest.mark.parametrize("address", OFF_LOOPBACK)
def test_a_mesh_or_tls_allows_any_address(address: str) -> None:
    check_listener(Listener(address, behind_mesh=True))
    credentials = grpc.ssl_server_credentials([(b"key", b"certificate")])
    check_listener(Listener(address, credentials=credentials))


@pytest.mark.parametrize("address", OFF_LOOPBACK)
def test_development_serves_loopback_alone(address: str) -> None:
    for listener in (
        Listener(address, dev=True),
        Listener(address, dev=True, behind_mesh=True),
        Listener(address, dev=True, credentials=grpc.ssl_server_credentials([(b"key", b"certificate")])),
    ):
        with pytest.raises(SettingsError, match="--dev serves loopback alone"):
            check_listener(listener)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:http",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "::1:7443",
        ":7443",
        "dns:///127.0.0.1:7443",
        "vsock:1:2",
        "http://127.0.0.1:7443",
        "127.0.0.1:7443\n",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match="no address to listen on"):
        check_listener(Listener(address))


async def test_plaintext_off_loopback_is_refused_before_anything_is_bound(server: grpc.aio.Server) -> None:
    with pytest.raises(SettingsError, match="refusing to serve plaintext"):
        bind(server, Listener("0.0.0.0:0"))


async def test_a_free_port_is_found_and_told(server: grpc.aio.Server) -> None:
    assert 1_024 <= bind(server, Listener("127.0.0.1:0")) <= 65_535


async def test_a_port_that_is_taken_is_an_error(server: grpc.aio.Server) -> None:
    port = bind(server, Listener("127.0.0.1:0"))
    await server.start()
    second = grpc.aio.server(options=server_options())
    with pytest.raises(SettingsError, match="the port is taken"):
        bind(second, Listener(f"127.0.0.1:{port}"))
    await second.stop(None)


async def test_processes_may_share_a_port_by_choice() -> None:
    servers = [grpc.aio.server(options=server_options(so_reuseport=True)) for _ in range(2)]
    port = bind(servers[0], Listener("127.0.0.1:0"))
    assert bind(servers[1], Listener(f"127.0.0.1:{port}")) == port
    for server in servers:
        await server.stop(None)


async def test_a_unix_socket_has_no_port(server: grpc.aio.Server, tmp_unix_socket: Path) -> None:
    assert bind(server, Listener(f"unix:{tmp_unix_socket}")) == 0
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_unix_socket}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 10)


async def test_a_unix_socket_in_a_folder_that_is_not_there(
    server: grpc.aio.Server, tmp_unix_socket: Path
) -> None:
    with pytest.raises(SettingsError, match="cannot listen on unix:"):
        bind(server, Listener(f"unix:{tmp_unix_socket.parent}/missing/s"))


async def test_an_address_of_another_machine_is_an_error(server: grpc.aio.Server) -> None:
    with pytest.raises(SettingsError, match="not of this machine"):
        bind(server, Listener("192.0.2.1:7443", behind_mesh=True))
