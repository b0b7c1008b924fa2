"""Asking for what is another's is answered as asking for what never was: same bytes, same steps.

Steps are counted, not timed: what a timing would show is work that one answer needs and the other does not,
and that work is an operation of the store, or on Valkey a command within it. Counts are exact on any
machine, where times need thousands of samples and still fail at random.

A lease is named by its job and an id of 122 random bits. A device that knows both of another's lease learns
that they are right (NOT_LEASE_HOLDER) and nothing else; nobody can get that far by asking.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import grpc.aio
import pytest

from relay_service.store.base import RoutingStore
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.relay_service.planes.scene import claim, complete, release
from tests.relay_service.planes.twins import TWINS, ask_on_stream
from tests.relay_service.raw_client import RawParty, RawStream, row
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, keys_of, ref, timestamp
from tests.relay_service.routes.recording import Record, RecordingChannel
from tests.relay_service.store.valkey_fixture import TcpServer

# Six characters each, so that one can stand for another in an answer without a length that differs.
NEVER_WAS = "j-none"
JOBS = ("j-held", "j-seal", "j-done", "j-gone", "j-wait")
Lease = job_pb2.LeaseRef
Build = Callable[[str, str], Any]


def stub(job_id: str) -> job_pb2.JobStub:
    return job_pb2.JobStub(
        id=job_id,
        kind="llm.generate",
        owner="alice",
        site=keys_of("other").key_id,
        audience=job_pb2.AUDIENCE_TEAM,
        size_class=job_pb2.SIZE_CLASS_SMALL,
        deadline_time=timestamp(START_MS + 500_000),
    )


def sealing(job_id: str, lease_id: str) -> site_plane_pb2.SealPayloadRequest:
    envelope = job_pb2.SealedEnvelope(
        ciphertext=b"x",
        recipient_key_id=keys_of("runner-1").key_id,
        sender_key_id=keys_of("other").key_id,
        direction=job_pb2.DIRECTION_PAYLOAD,
        deadline_time=timestamp(START_MS + 500_000),
    )
    return site_plane_pb2.SealPayloadRequest(job_id=job_id, lease_id=lease_id, envelope=envelope)


def completing(job_id: str, lease_id: str) -> daemon_plane_pb2.CompleteJobRequest:
    return complete(Lease(job_id=job_id, lease_id="guessed"), sender_key_id=keys_of("runner-2").key_id)


# What a request about a job looks like, given the job's id and the true id of its lease. Sites are given
# the true one, since a device may have told them; a device has to guess.
PROBES: Mapping[str, Build] = {
    "EnqueueJob": lambda job, _: site_plane_pb2.EnqueueJobRequest(stub=stub(job)),
    "EnqueueJobs": lambda job, _: site_plane_pb2.EnqueueJobsRequest(stubs=[stub(job)]),
    "GetJob": lambda job, _: site_plane_pb2.GetJobRequest(job_id=job),
    "CancelJob": lambda job, _: site_plane_pb2.CancelJobRequest(job_id=job),
    "SealPayload": sealing,
    "GetResult": lambda job, _: site_plane_pb2.GetResultRequest(job_id=job),
    "AckResults": lambda job, _: site_plane_pb2.AckResultsRequest(job_ids=[job]),
    "ClaimJobs": lambda job, _: claim(job, matrix=[row("llm.chat")]),
    "RenewLeases": lambda job, _: daemon_plane_pb2.RenewLeasesRequest(
        leases=[Lease(job_id=job, lease_id="guessed")]
    ),
    "FetchPayload": lambda job, _: daemon_plane_pb2.FetchPayloadRequest(
        lease=Lease(job_id=job, lease_id="guessed")
    ),
    "CompleteJob": completing,
    "ReleaseLeases": lambda job, _: release(Lease(job_id=job, lease_id="guessed")),
}
# An answer that says nothing has no bytes.
EMPTY_ANSWERS = {"CancelJob", "AckResults", "ClaimJobs", "ReleaseLeases"}
# Methods whose requests name nothing that another could own, and why.
NAMES_NOTHING = {
    "GetSites": "it has no field",
    "ListNotices": "a page token is a position in the caller's own inbox",
    "StartPairing": "it names the caller's own key, with a proof",
    "WatchPairing": "a device code is a secret of 256 bits",
    "PollPairing": "a device code is a secret of 256 bits",
    "Session": "see the items below",
}
# The same for what a device says on its stream; calls ride it as their unary twins do.
ITEMS: Mapping[str, Build] = {
    "renew": lambda job, _: daemon_plane_pb2.Renew(
        renewal_id=1, leases=[Lease(job_id=job, lease_id="guessed")]
    ),
    "grant_ack": lambda job, _: daemon_plane_pb2.GrantAck(leases=[Lease(job_id=job, lease_id="guessed")]),
    "cancel_ack": lambda job, _: daemon_plane_pb2.CancelAck(leases=[Lease(job_id=job, lease_id="guessed")]),
}
ITEMS_THAT_NAME_NOTHING = {
    "heartbeat",
    "credit",
    "capabilities_changed",
    "draining",
    "goodbye",
    "call",  # as the unary twins
    "hello",  # its inventory is tried below
    "inventory",  # continues that of the hello
}


class Steps:
    """What the store has done since the last look."""

    def __init__(self, relay: RelayUnderTest, server: TcpServer | None) -> None:
        self._client = None if server is None else server.client
        self._counted = Counter[str]()
        if server is None:
            self._count_operations(relay.store)

    def _count_operations(self, store: Any) -> None:
        for name in (name for name in vars(RoutingStore) if not name.startswith("_")):
            operation = getattr(store, name)
            if callable(operation) and name != "listen":
                setattr(store, name, self._counting(name, operation))

    def _counting(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self._counted[name] += 1
            return operation(*args, **options)

        return counted

    def take(self) -> Counter[str]:
        if self._client is not None:
            stats: Any = self._client.info("commandstats")
            self._client.config_resetstat()
            return Counter(
                {
                    name: value["calls"]
                    for name, value in stats.items()
                    if not name.startswith(("cmdstat_info", "cmdstat_config"))
                }
            )
        taken, self._counted = self._counted, Counter()
        return taken


class Prober:
    """One party, and what it sees and causes with each question."""

    def __init__(self, relay: RelayUnderTest, steps: Steps, party: Callable[..., Any], name: str) -> None:
        self.record = Record()
        self._steps = steps
        channel = getattr(relay, "device_channel", relay.channel) if name != "other" else relay.channel
        self.party: RawParty = party(name, channel=RecordingChannel(channel, self.record))

    async def ask(self, method: str, request: Any, name: str) -> tuple[bytes, Counter[str]]:
        """Everything that came back, the caller's own word for the job replaced, and the steps taken."""
        self.record.heard.clear()
        self._steps.take()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self.party.call(method, request)
        return self._seen(name), self._steps.take()

    async def say(self, stream: RawStream, name: str, speak: Callable[[], Any]) -> tuple[bytes, Counter[str]]:
        """The same of something said on a stream."""
        stream.items.clear()
        self._steps.take()
        await speak()
        await stream.settle()
        items = b"|".join(item.SerializeToString(deterministic=True) for item in stream.items)
        return items.replace(name.encode(), NEVER_WAS.encode()), self._steps.take()

    def _seen(self, name: str) -> bytes:
        return b"|".join(self.record.heard).replace(name.encode(), NEVER_WAS.encode())


async def prepare(relay: RelayUnderTest) -> dict[str, str]:
    """Jobs of site demo in every state, those held by runner-1; the ids of their leases."""
    leases = {"j-wait": "lease-0"}
    for job_id in JOBS[:4]:
        await relay.enqueue(job_id)
        (granted,) = (await relay.daemon().call("ClaimJobs", claim(job_id))).granted
        leases[job_id] = granted.lease.id
        if job_id in {"j-seal", "j-done"}:
            await relay.seal(ref(granted))
        if job_id == "j-done":
            await relay.daemon().call("CompleteJob", complete(ref(granted)))
        if job_id == "j-gone":
            await relay.cancel(job_id)
    await relay.enqueue("j-wait")
    return leases


@pytest.fixture
def steps(request: pytest.FixtureRequest, any_relay: RelayUnderTest) -> Steps:
    shared = hasattr(any_relay, "device_server")
    return Steps(any_relay, request.getfixturevalue("valkey") if shared else None)


def service_of(method: str) -> str:
    return "SitePlaneService" if method in _methods(site_plane_pb2) else "DaemonPlaneService"


def _methods(file: Any) -> set[str]:
    return {
        method.name for service in file.DESCRIPTOR.services_by_name.values() for method in service.methods
    }


def prober(relay: RelayUnderTest, steps: Steps, method: str) -> Prober:
    if service_of(method) == "SitePlaneService":
        return Prober(relay, steps, relay.site, "other")
    return Prober(relay, steps, relay.daemon, "runner-2")


@pytest.mark.parametrize("method", PROBES)
async def test_a_call_about_anothers_job(any_relay: RelayUnderTest, steps: Steps, method: str) -> None:
    leases, asking = await prepare(any_relay), prober(any_relay, steps, method)
    # The first one also pays for what is loaded once.
    await asking.ask(method, PROBES[method]("j-warm", "lease-0"), "j-warm")
    unknown, done = await asking.ask(method, PROBES[method](NEVER_WAS, "lease-0"), NEVER_WAS)
    assert asking.record.heard or method in EMPTY_ANSWERS
    assert sum(done.values()) > 0
    for job_id in JOBS:
        request = PROBES[method](job_id, leases[job_id])
        assert await asking.ask(method, request, job_id) == (unknown, done), job_id


@pytest.mark.parametrize("method", TWINS)
async def test_a_call_on_a_stream_about_anothers_job(
    any_relay: RelayUnderTest, steps: Steps, method: str
) -> None:
    leases, asking = await prepare(any_relay), prober(any_relay, steps, method)
    stream = await asking.party.connect(limit=0)
    await stream.settle()
    await _reply(asking, stream, method, PROBES[method]("j-warm", "lease-0"), "j-warm")
    unknown = await _reply(asking, stream, method, PROBES[method](NEVER_WAS, "lease-0"), NEVER_WAS)
    for job_id in JOBS:
        request = PROBES[method](job_id, leases[job_id])
        assert await _reply(asking, stream, method, request, job_id) == unknown, job_id


async def _reply(
    asking: Prober, stream: RawStream, method: str, request: Any, name: str
) -> tuple[bytes, Counter[str]]:
    reply: list[bytes] = []

    async def speak() -> None:
        answer = await ask_on_stream(stream, method, request)
        reply.append(answer.SerializeToString(deterministic=True))

    items, steps = await asking.say(stream, name, speak)
    return reply[0].replace(name.encode(), NEVER_WAS.encode()) + b"|" + items, steps


@pytest.mark.parametrize("arm", ITEMS)
async def test_an_item_about_anothers_lease(any_relay: RelayUnderTest, steps: Steps, arm: str) -> None:
    await prepare(any_relay)
    asking = Prober(any_relay, steps, any_relay.daemon, "runner-2")
    stream = await asking.party.connect(limit=0)
    await stream.settle()

    async def said(name: str) -> tuple[bytes, Counter[str]]:
        return await asking.say(stream, name, lambda: stream.send(**{arm: ITEMS[arm](name, "")}))

    await said("j-warm")
    unknown = await said(NEVER_WAS)
    for job_id in JOBS:
        assert await said(job_id) == unknown, job_id


async def test_an_inventory_of_anothers_leases(any_relay: RelayUnderTest, steps: Steps) -> None:
    await prepare(any_relay)
    asking = Prober(any_relay, steps, any_relay.daemon, "runner-2")
    answers = set()
    for name in ("j-warm", NEVER_WAS, *JOBS):
        held = {"leases": [Lease(job_id=name, lease_id="guessed")]}
        stream = await asking.party.connect(limit=0, inventory=held)
        verdicts = (await stream.next("verdicts")).SerializeToString(deterministic=True)
        answers.add(verdicts.replace(name.encode(), NEVER_WAS.encode()))
        stream.call.cancel()
    assert len(answers) == 1


def test_every_method_and_item_is_tried() -> None:
    methods = _methods(site_plane_pb2) | _methods(daemon_plane_pb2)
    assert set(PROBES) | set(NAMES_NOTHING) == methods
    arms = {field.name for field in daemon_plane_pb2.DaemonItem.DESCRIPTOR.fields}
    assert set(ITEMS) | ITEMS_THAT_NAME_NOTHING == arms
    calls = (site_plane_pb2.SiteCall, daemon_plane_pb2.DaemonCall)
    riding = {field.name for call in calls for field in call.DESCRIPTOR.oneofs_by_name["request"].fields}
    assert set(TWINS.values()) == riding
