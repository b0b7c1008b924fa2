"""TLS, and client certificates in place of signatures."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from durable_service.core.definition import TaskKey
from durable_service.principals import Principals
from sealwork.durable.v1 import task_service_pb2, worker_service_pb2
from sealwork.session.v1 import session_pb2
from service_common.errors import SettingsError
from service_common.listeners import Listener
from service_common.tls import TlsFiles, server_credentials
from tests.durable_service.durable_fixture import (
    PRINCIPALS,
    DurableUnderTest,
    creation,
    durable_process,
    serving,
)
from tests.durable_service.raw_client import Refusal, path_of
from tests.harness.certificates import Authority

PROTOCOL = (("sealwork-protocol", "1"),)
WORKER_ID = "spiffe://example.org/ns/demo/worker"


def certified(name: str, spiffe_id: str) -> Principals:
    """The principals, with a certificate as the credential of one."""
    changed = replace(PRINCIPALS.by_id[name], key=None, spiffe_id=spiffe_id)
    return Principals.of([*(each for each in PRINCIPALS.by_id.values() if each.id != name), changed])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@asynccontextmanager
async def served(authority: Authority, name: str, spiffe_id: str) -> AsyncIterator[DurableUnderTest]:
    certificate, key = authority.issue("server", "DNS:localhost")
    credentials = server_credentials(TlsFiles(certificate, key, authority.certificate))
    listeners = [Listener("localhost:0", credentials)]
    async with serving(principals=certified(name, spiffe_id), listeners=listeners) as service:
        yield service


def channel(authority: Authority, service: DurableUnderTest, alternative: str) -> Any:
    certificate, key = authority.issue("client", alternative)
    credentials = grpc.ssl_channel_credentials(
        authority.certificate.read_bytes(), key.read_bytes(), certificate.read_bytes()
    )
    return grpc.aio.secure_channel(service.server.address, credentials)


async def create(channel: Any, metadata: Any = PROTOCOL) -> task_service_pb2.CreateTaskResponse:
    answer = await channel.unary_unary(path_of("CreateTask"))(
        creation().SerializeToString(), metadata=metadata, timeout=20
    )
    return task_service_pb2.CreateTaskResponse.FromString(answer)


async def refused(channel: Any) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await create(channel)
    return Refusal.of_error(raised.value)


class TestCertificates:
    async def test_a_call_without_a_signature(self, authority: Authority) -> None:
        async with (
            served(authority, "alice", WORKER_ID) as service,
            channel(authority, service, f"URI:{WORKER_ID}") as secure,
        ):
            assert (await create(secure)).created
            record = await service.store.get(TaskKey("acme", "task"))
            assert record is not None
            assert record.definition.identity.actor_id == "alice"

    async def test_who_is_not_named_has_to_sign(self, authority: Authority) -> None:
        async with served(authority, "alice", WORKER_ID) as service:
            for alternative in ("URI:spiffe://example.org/ns/demo/other", "DNS:alice"):
                async with channel(authority, service, alternative) as secure:
                    assert (await refused(secure)).reason == "UNSIGNED_REQUEST"
            async with channel(authority, service, "DNS:anybody") as secure:
                service.channel = secure
                assert (await service.create(caller="bob")).created

    async def test_two_names_are_none(self, authority: Authority) -> None:
        both = f"URI:{WORKER_ID},URI:spiffe://example.org/ns/demo/other"
        async with (
            served(authority, "alice", WORKER_ID) as service,
            channel(authority, service, both) as secure,
        ):
            assert (await refused(secure)).reason == "UNSIGNED_REQUEST"

    async def test_one_that_is_cut_off(self, authority: Authority) -> None:
        async with (
            served(authority, "alice", WORKER_ID) as service,
            channel(authority, service, f"URI:{WORKER_ID}") as secure,
        ):
            disabled = replace(service.source.current.by_id["alice"], disabled=True)
            service.source.replace(Principals.of([disabled]))

            assert (await refused(secure)).reason == "PRINCIPAL_REVOKED"

    async def test_a_stream_without_a_signature(self, authority: Authority) -> None:
        async with (
            served(authority, "worker", WORKER_ID) as service,
            channel(authority, service, f"URI:{WORKER_ID}") as secure,
        ):
            assert (await _hello(secure, "worker")).HasField("welcome")
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await _hello(secure, "other-worker")
            assert Refusal.of_error(raised.value).reason == "BAD_SIGNATURE"

    async def test_without_a_certificate_there_is_no_connection(self, authority: Authority) -> None:
        async with served(authority, "alice", WORKER_ID) as service:
            credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
            async with grpc.aio.secure_channel(service.server.address, credentials) as secure:
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await create(secure)
                assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def _hello(channel: Any, principal_id: str) -> Any:
    call = channel.stream_stream(path_of("Session"))()
    await call.read()
    hello = worker_service_pb2.WorkerHello(
        principal_id=principal_id, worker_id="w", process_id="p", protocol_version=1
    )
    signed = session_pb2.SignedHello(hello=hello.SerializeToString())
    item = worker_service_pb2.WorkerItem(hello=signed)
    await call.write(worker_service_pb2.WorkerServiceSessionRequest(seq=1, items=[item]).SerializeToString())
    frame = await call.read()
    if frame is grpc.aio.EOF:
        raise grpc.aio.AioRpcError(
            await call.code(), await call.initial_metadata(), await call.trailing_metadata()
        )
    call.cancel()
    return worker_service_pb2.WorkerServiceSessionResponse.FromString(frame).items[0]


class TestFiles:
    async def test_a_certificate_that_is_replaced(self, authority: Authority, tmp_path: Path) -> None:
        old, key = authority.issue("old", "DNS:localhost")
        files = TlsFiles(tmp_path / "server.pem", tmp_path / "server.key")
        _copy(old, key, files)
        listener = Listener("localhost:0", server_credentials(files))
        async with serving(listeners=[listener]) as service:
            await _serves(authority, service, "localhost")
            _copy(*authority.issue("new", "DNS:renewed.example"), files)

            await _serves(authority, service, "renewed.example")

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match=r"TLS: .*server\.pem: No such file"):
            server_credentials(TlsFiles(tmp_path / "server.pem", tmp_path / "server.key"))


def _copy(certificate: Path, key: Path, files: TlsFiles) -> None:
    files.certificate.write_bytes(certificate.read_bytes())
    files.key.write_bytes(key.read_bytes())


async def _serves(authority: Authority, service: DurableUnderTest, name: str) -> None:
    """Connects, and accepts a certificate of that name alone."""
    credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
    # An argument that no other channel has, so that no connection is shared.
    options = (("grpc.ssl_target_name_override", name), ("sealwork.test", str(time.monotonic_ns())))
    async with grpc.aio.secure_channel(service.server.address, credentials, options) as secure:
        service.channel = secure
        assert (await service.create(f"by-{name}")).created


@pytest.mark.process
async def test_a_process_with_certificates(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("process", "DNS:localhost")
    flags = ["--listen", "localhost:0", "--tls-certificate", str(certificate), "--tls-key", str(key)]
    flags += ["--tls-client-ca", str(authority.certificate)]
    principals = certified("alice", WORKER_ID)
    async with durable_process(tmp_path, *flags, principals=principals) as (_, address):
        client, client_key = authority.issue("client", f"URI:{WORKER_ID}")
        credentials = grpc.ssl_channel_credentials(
            authority.certificate.read_bytes(), client_key.read_bytes(), client.read_bytes()
        )
        async with grpc.aio.secure_channel(address, credentials) as secure:
            assert (await create(secure)).created
