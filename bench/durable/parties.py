"""Who takes part in a load on the durable service, and what they ask for."""

from dataclasses import dataclass
from random import Random
from uuid import uuid4

from bench.peer_relay.party import Party, new_party
from durable_service.client.calls import Calls
from durable_service.client.principal_key import PrincipalKey
from durable_service.client.tasks import NewTask
from durable_service.core.definition import Driver
from durable_service.principals import Principal, Principals, Role
from sealwork.durable.v1 import task_pb2, worker_service_pb2
from service_common.clocks import SystemClock
from service_common.connection import Connection
from service_common.unary_calls import RequestSigner

TENANT, ACTOR = "bench", "owner"
SUBMITTER = new_party("submitter", Random(1))
WORKER = new_party("worker", Random(2))
DRIVER = Driver("bench", 1)
DRIVER_NAME = f"{DRIVER.id}@{DRIVER.version}"
DRIVER_REF = task_pb2.DriverRef(id=DRIVER.id, version=DRIVER.version)
GRANT = "grant:bench"


@dataclass(frozen=True, slots=True)
class LibraryParty:
    """A principal that uses the client library, as the actor of its own name or as the owner of tasks."""

    principal_id: str
    role: Role
    actor: str
    key: PrincipalKey

    def principal(self) -> Principal:
        """As the service knows it."""
        drivers = frozenset({DRIVER.id}) if self.role is Role.WORKER else frozenset[str]()
        return Principal(
            self.principal_id,
            TENANT,
            self.actor,
            frozenset({self.role}),
            self.key.signer.public_key,
            drivers=drivers,
        )


# Seeds, since each process makes the same keys for itself; they protect nothing.
SUBMITTING = LibraryParty("submitting", Role.SUBMITTER, ACTOR, PrincipalKey(bytes([1] * 32)))
WORKING = LibraryParty("working", Role.WORKER, "working", PrincipalKey(bytes([2] * 32)))
APPROVING = LibraryParty("approving", Role.APPROVER, "approving", PrincipalKey(bytes([3] * 32)))


def principals() -> Principals:
    """One principal for each party."""
    return Principals.of(
        [
            _principal(SUBMITTER, ACTOR, Role.SUBMITTER),
            _principal(WORKER, WORKER.caller_id, Role.WORKER, drivers=frozenset({DRIVER.id})),
            *(party.principal() for party in (SUBMITTING, WORKING, APPROVING)),
        ]
    )


def new_task() -> NewTask:
    """A task like all others, under an id of its own."""
    return NewTask(f"task-{uuid4().hex}", driver=DRIVER, input={"day": 7}, grant_refs=(GRANT,))


def worker_hello(worker_id: str) -> worker_service_pb2.WorkerHello:
    """What the stream of a worker begins with; it wants no hints."""
    return worker_service_pb2.WorkerHello(
        principal_id=WORKER.caller_id,
        worker_id=worker_id,
        process_id="bench",
        client_name="bench",
        client_version="0.1.0",
        protocol_version=1,
        drivers=[DRIVER_REF],
    )


def signed_calls(connection: Connection, party: Party, random: Random) -> Calls:
    """Signed unary calls of one party, on a connection of its own."""
    clock = SystemClock()
    signer = RequestSigner(party.caller_id, party.keys.signer, clock)
    return Calls(connection.calls_channel, signer, clock=clock, random=random)


def _principal(party: Party, actor: str, *roles: Role, drivers: frozenset[str] = frozenset()) -> Principal:
    return Principal(
        party.caller_id, TENANT, actor, frozenset(roles), party.keys.signer.public_key, drivers=drivers
    )
