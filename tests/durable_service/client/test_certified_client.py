"""Clients whose certificate takes the place of signatures."""

from dataclasses import replace
from random import Random

import pytest

from durable_service.blobs.memory import MemoryBlobStore
from durable_service.client import Client, Connection, DurableError, TaskContext, TaskState, Worker
from durable_service.principals import Principals
from durable_service.principals_source import PrincipalsSource
from durable_service.server import DurableServer, ServerOptions
from durable_service.store.clock import wall_ms
from durable_service.store.memory import MemoryTaskStore
from durable_service.stores import Stores
from service_common.clocks import SystemClock
from service_common.listeners import Listener
from service_common.tls import TlsFiles, server_credentials
from tests.durable_service.client.real_service import RunningWorker, key_of, mail, running_worker
from tests.durable_service.durable_fixture import PRINCIPALS
from tests.harness.certificates import Authority

WORKER_ID = "spiffe://example.org/ns/demo/worker"


async def test_a_worker_with_a_certificate_signs_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    certificate, key = authority.issue("server", "DNS:localhost")
    own, own_key = authority.issue("worker", f"URI:{WORKER_ID}")
    credentials = server_credentials(TlsFiles(certificate, key, authority.certificate))
    certified = replace(PRINCIPALS.by_id["worker"], key=None, spiffe_id=WORKER_ID)
    others = [each for each in PRINCIPALS.by_id.values() if each.id != "worker"]
    server = DurableServer(
        Stores(MemoryTaskStore(), MemoryBlobStore(wall_ms)),
        PrincipalsSource(Principals.of([*others, certified])),
        ServerOptions([Listener("localhost:0", credentials)]),
        clock=SystemClock(),
        random=Random(7),
    )

    async def handler(_: TaskContext) -> str:
        return "mail:1"

    async with server:
        connection = Connection.with_tls(
            server.address,
            authority.certificate.read_bytes(),
            certificate=own.read_bytes(),
            private_key=own_key.read_bytes(),
        )
        signing = Client(connection, principal_id="alice", key=key_of("alice"))
        certain = Client(connection, principal_id="worker", key=None)
        pretending = Client(connection, principal_id="other-worker", key=None)
        async with signing, certain, pretending:
            worker = RunningWorker(Worker(certain, {"mail@1": handler}), [])
            async with running_worker(worker):
                await worker.worker.opened()
                await signing.tasks.create(mail())
                ended, _ = await signing.tasks.wait("t-1")
                assert (ended.state, ended.result_ref) == (TaskState.COMPLETED, "mail:1")
            with pytest.raises(DurableError) as refused:
                await Worker(pretending, {"mail@1": handler}).run()
            assert refused.value.reason == "BAD_SIGNATURE"
