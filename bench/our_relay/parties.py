"""Who takes part in a load on our relay, and what they say of themselves."""

from random import Random
from uuid import UUID

from bench.our_relay.legs import now_ms
from bench.peer_relay.party import Party
from relay_service.client.calls import Calls, RequestSigner
from relay_service.client.connection import Connection
from relay_service.client.payloads import size_class
from relay_service.client.wire import AUDIENCES, SIZE_CLASSES, capability_to_proto, timestamp_of
from relay_service.core.model import Audience, Capability
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.clocks import SystemClock

KIND = "llm.generate"
ROW = Capability(KIND, "local", "llamacpp", "http", "bench", Audience.PRIVATE)
# Jobs outlast the longest burst, and whatever goes wrong in one does not outlast the run.
_DEADLINE_MS = 3_600_000


def new_job_stub(owner: str, site: Party, prompt: str, random: Random) -> job_pb2.JobStub:
    """What the relay learns of a job: everything but its content."""
    return job_pb2.JobStub(
        id=str(UUID(bytes=random.randbytes(16), version=4)),
        kind=KIND,
        owner=owner,
        site=site.keys.key_id,
        audience=AUDIENCES[Audience.PRIVATE],
        size_class=SIZE_CLASSES[size_class(len(prompt))],
        deadline_time=timestamp_of(now_ms() + _DEADLINE_MS),
    )


def site_hello(site: Party, credit: int) -> site_plane_pb2.SiteHello:
    """What a stream of a site begins with."""
    return site_plane_pb2.SiteHello(
        site_id=site.caller_id,
        process_id="bench",
        client_version="0.1.0",
        protocol_version=1,
        capabilities=[session_pb2.CAPABILITY_INLINE_RESULT],
        credit=session_pb2.Credit(limit=credit),
    )


def daemon_hello(device: Party, credit: int) -> daemon_plane_pb2.DaemonHello:
    """What a stream of a device begins with."""
    return daemon_plane_pb2.DaemonHello(
        runner_id=device.caller_id,
        process_id="bench",
        client_version="0.1.0",
        protocol_version=1,
        capabilities=[session_pb2.CAPABILITY_INLINE_PAYLOAD],
        matrix=[capability_to_proto(ROW)],
        credit=session_pb2.Credit(limit=credit),
    )


def unary_calls(connection: Connection, party: Party, random: Random) -> Calls:
    """Signed unary calls of one party, on a connection of its own."""
    clock = SystemClock()
    signer = RequestSigner(party.caller_id, party.keys.signer, clock)
    return Calls(connection.calls_channel, signer, clock=clock, random=random)
