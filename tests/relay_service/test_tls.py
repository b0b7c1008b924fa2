"""A relay that serves TLS itself, as a process of its own."""

import asyncio
import contextlib
import re
import ssl
from pathlib import Path

import pytest

from relay_service.client import (
    Daemon,
    GeneratePayload,
    JobContext,
    OkOutcome,
    RelayError,
    Site,
)
from relay_service.client.outcomes import Outcome
from relay_service.config import load_settings
from relay_service.core.model import Audience, Capability
from service_common.connection import Connection
from service_common.errors import SettingsError
from tests.harness.certificates import Authority
from tests.relay_service.relay_fixture import keys_of, relay_process

MATRIX = [Capability("llm.generate", "desk", "llamacpp", "http", "small", Audience.PRIVATE)]

pytestmark = pytest.mark.process


async def echo(context: JobContext) -> Outcome:
    assert isinstance(context.payload, GeneratePayload)
    return OkOutcome("over TLS: " + context.payload.prompt)


def flags(certificate: Path, key: Path, *others: str) -> list[str]:
    return ["--tls-certificate", str(certificate), "--tls-key", str(key), *others]


def port_of(address: str) -> int:
    return int(re.sub(r".*:", "", address))


def issue(folder: Path, name: str = "relay") -> tuple[Authority, Path, Path]:
    authority = Authority(folder)
    return authority, *authority.issue(name, "DNS:localhost,IP:127.0.0.1")


async def serial_of(address: str, authority: Authority) -> int:
    """Which certificate a new connection is given."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(address), ssl=context)
    try:
        return int(writer.get_extra_info("peercert")["serialNumber"], 16)
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def test_a_job_crosses_a_relay_that_serves_tls(tmp_path: Path) -> None:
    authority, certificate, key = await asyncio.to_thread(issue, tmp_path)
    async with relay_process(tmp_path, *flags(certificate, key)) as (_, address):
        connection = Connection.with_tls(address, authority.certificate.read_bytes())
        daemon = Daemon(
            connection,
            runner_id="runner-1",
            keys=keys_of("runner-1"),
            pins=[keys_of("demo").public],
            matrix=MATRIX,
            handlers={"llm.generate": echo},
            owner="alice",
        )
        running = asyncio.ensure_future(daemon.run())
        try:
            await asyncio.wait_for(daemon.opened(), 20)
            async with Site(connection, site_id="demo", keys=keys_of("demo")) as site:
                job = await site.enqueue(GeneratePayload("hello"), owner="alice")
                assert (await job.result(20)).text == "over TLS: hello"
        finally:
            await daemon.stop(grace_seconds=5)
            await running


async def test_plaintext_is_not_spoken_there(tmp_path: Path) -> None:
    _, certificate, key = await asyncio.to_thread(issue, tmp_path)
    async with relay_process(tmp_path, *flags(certificate, key)) as (_, address):
        with pytest.raises(RelayError):
            async with Site(address, site_id="demo", keys=keys_of("demo"), connect_timeout=3):
                pass


async def test_a_new_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    authority, certificate, key = await asyncio.to_thread(issue, tmp_path)
    async with relay_process(tmp_path, *flags(certificate, key)) as (_, address):
        first = await serial_of(address, authority)
        assert await serial_of(address, authority) == first
        renewed = await asyncio.to_thread(authority.issue, "renewed", "DNS:localhost,IP:127.0.0.1")
        for new, old in zip(renewed, (certificate, key), strict=True):
            await asyncio.to_thread(new.replace, old)
        assert await serial_of(address, authority) != first


def test_what_is_refused() -> None:
    with pytest.raises(SettingsError, match="--tls-certificate and --tls-key go together"):
        load_settings({"dev": True, "tls_certificate": "c.pem"})
    with pytest.raises(SettingsError, match=r"refusing to serve plaintext on 10\.0\.0\.1:7433"):
        load_settings({"store": "embedded:x", "listen": "10.0.0.1:7433"})
    protected = {"store": "embedded:x", "tls_certificate": "c.pem", "tls_key": "k.pem"}
    assert load_settings({**protected, "listen": "10.0.0.1:7433"}).listen == "10.0.0.1:7433"
