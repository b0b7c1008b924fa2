"""The relay can open nothing: it holds no code that could, and no plaintext ever comes near it.

Everything here is about the real program, run as its operator runs it.
"""

import ast
import asyncio
import base64
import importlib.util
import json
import os
import re
import signal
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from relay_service.client.envelope import Envelope, open_envelope, seal
from relay_service.planes.convert import envelope_from_proto, identity_from_proto
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.harness.processes import RunningProcess
from tests.relay_service.raw_client import KIND, RawDaemon, RawSite, Refusal
from tests.relay_service.relay_fixture import DAY_MS, keys_of, relay_process, timestamp

pytestmark = pytest.mark.process

FORBIDDEN_MODULES = (
    "relay_service.client",
    "service_common.signing",
    "service_common.session_client",
    "nacl.public",
    "nacl.secret",
    "nacl.signing",
    "nacl.utils",
)
# Of the cryptographic library the relay needs one function, which takes a public key.
ALLOWED_OF_NACL = {"nacl.bindings.crypto_sign_open", "nacl.exceptions.BadSignatureError"}
FORBIDDEN_NAMES = re.compile(
    r"SigningKey|PrivateKey|SealedBox|SecretBox|Signer|crypto_(?!sign_open)\w+|\w*(seal_open|open_envelope)",
)
PROMPT = "the-prompt-that-no-relay-may-see-7f3a"
ANSWER = "the-answer-that-no-relay-may-see-91c4"
IMPORT = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+([\w.]+)$")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def to_proto(envelope: Envelope) -> job_pb2.SealedEnvelope:
    directions = {"payload": job_pb2.DIRECTION_PAYLOAD, "result": job_pb2.DIRECTION_RESULT}
    return job_pb2.SealedEnvelope(
        ciphertext=envelope.ciphertext,
        recipient_key_id=envelope.recipient_key_id,
        sender_key_id=envelope.sender_key_id,
        direction=directions[envelope.direction],
        deadline_time=timestamp(envelope.deadline_at_ms),
    )


def from_proto(message: job_pb2.SealedEnvelope, direction: Any) -> Envelope:
    core = envelope_from_proto(message)
    return Envelope(
        core.ciphertext, core.recipient_key_id, core.sender_key_id, direction, core.deadline_at_ms
    )


@dataclass
class Cycle:
    """A job with a real prompt, really sealed, on its way through a relay."""

    site: RawSite
    device: RawDaemon
    lease: Any = None
    payload: Any = None

    async def until_held(self) -> None:
        """The device has claimed, and has opened what the site has sealed for it."""
        await self.site.call("EnqueueJob", site_plane_pb2.EnqueueJobRequest(stub=_stub()))
        stream = await self.device.connect(limit=1)
        site = await self.site.connect()
        notice = await site.next("notice")
        envelope = seal(
            keys=self.site.keys,
            recipient=identity_from_proto(notice.please_seal.device),
            job_id="job-1",
            direction="payload",
            plaintext=json.dumps({"prompt": PROMPT}),
            deadline_at_ms=now_ms() + DAY_MS,
        )
        self.payload = envelope
        request = site_plane_pb2.SealPayloadRequest(
            job_id="job-1", lease_id=notice.please_seal.lease_id, envelope=to_proto(envelope)
        )
        await site.send(call=site_plane_pb2.SiteCall(id=1, seal_payload=request))
        self.lease = (await stream.next("payload_ready")).lease
        fetch = daemon_plane_pb2.FetchPayloadRequest(lease=self.lease)
        fetched = await self.device.call("FetchPayload", fetch)
        opened = open_envelope(
            from_proto(fetched.envelope, "payload"),
            keys=self.device.keys,
            sender=self.site.keys.public,
            job_id="job-1",
            direction="payload",
            now_ms=now_ms(),
        )
        assert json.loads(opened) == {"prompt": PROMPT}

    def result(self) -> Any:
        envelope = seal(
            keys=self.device.keys,
            recipient=self.site.keys.public,
            job_id="job-1",
            direction="result",
            plaintext=json.dumps({"text": ANSWER}),
            deadline_at_ms=now_ms() + DAY_MS,
        )
        return daemon_plane_pb2.CompleteJobRequest(
            lease=self.lease, envelope=to_proto(envelope), disposition=job_pb2.DISPOSITION_OK
        )

    async def finish(self) -> None:
        """The device has answered, and the site has opened the answer."""
        assert (await self.device.call("CompleteJob", self.result())).accepted
        result = await self.site.call("GetResult", site_plane_pb2.GetResultRequest(job_id="job-1"))
        opened = open_envelope(
            from_proto(result.envelope, "result"),
            keys=self.site.keys,
            sender=self.device.keys.public,
            job_id="job-1",
            direction="result",
            now_ms=now_ms(),
        )
        assert json.loads(opened) == {"text": ANSWER}


def _stub() -> job_pb2.JobStub:
    return job_pb2.JobStub(
        id="job-1",
        kind=KIND,
        owner="alice",
        site=keys_of("demo").key_id,
        audience=job_pb2.AUDIENCE_TEAM,
        size_class=job_pb2.SIZE_CLASS_SMALL,
        deadline_time=timestamp(now_ms() + DAY_MS),
    )


def parties(channel: Any) -> Cycle:
    return Cycle(
        RawSite(channel, "demo", keys_of("demo"), now_ms),
        RawDaemon(channel, "runner-1", keys_of("runner-1"), now_ms),
    )


def spellings(text: str) -> list[bytes]:
    """A text as it may be written down: as it is, in hexadecimal, in base64 at any place of a larger one."""
    raw = text.encode()
    found = [raw, raw.hex().encode(), raw.hex().upper().encode(), raw[::-1]]
    for place in range(3):
        coded = base64.b64encode(bytes(place) + raw)
        # The ends depend on what is around it.
        inner = coded[4 if place else 0 : -4]
        found += [inner, inner.translate(bytes.maketrans(b"+/", b"-_"))]
    return found


SECRETS = [spelling for text in (PROMPT, ANSWER) for spelling in spellings(text)]


def assert_blind(what: str, held: bytes) -> None:
    assert [secret for secret in SECRETS if secret in held] == [], f"{what} hold plaintext"


def memory_of(pid: int) -> bytes:
    """Everything that a process has written to its memory."""
    found = []
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in maps:
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if match is None:
                continue
            start, end = int(match[1], 16), int(match[2], 16)
            try:
                memory.seek(start)
                found.append(memory.read(end - start))
            except OSError:
                # Mapped and never backed.
                continue
    return b"".join(found)


async def test_the_relay_loads_no_code_that_could_open_or_sign(tmp_path: Path) -> None:
    """Not while it starts, and not while a job goes through it."""
    python = ("-X", "importtime", "-m", "relay_service")
    async with relay_process(tmp_path, python=python) as (process, address):
        async with grpc.aio.insecure_channel(address) as channel:
            cycle = parties(channel)
            await cycle.until_held()
            await cycle.finish()
        process.terminate()
        assert await process.wait() == 0
    loaded = {match[1] for line in process.stderr if (match := IMPORT.match(line))}
    ours = {name for name in loaded if name.split(".")[0] in {"relay_service", "service_common"}}
    assert {"relay_service.server", "relay_service.store.memory", "service_common.verification"} <= ours
    assert [name for name in loaded if name.startswith(FORBIDDEN_MODULES)] == []
    assert [fault for name in sorted(ours) for fault in faults_of(name)] == []


def faults_of(module: str) -> list[str]:
    """What a module names that the relay must not know of."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    named: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=imported):
                named |= {alias.name for alias in imported}
            case ast.ImportFrom(module=origin, names=imported):
                named |= {f"{origin}.{alias.name}" for alias in imported}
            case ast.Name(id=name) | ast.Attribute(attr=name):
                named.add(name)
            case ast.Constant(value=str() as text) if text.isidentifier():
                named.add(text)
    of_nacl = {name for name in named if name.startswith("nacl")} - ALLOWED_OF_NACL
    names = {name for name in named if FORBIDDEN_NAMES.fullmatch(name.rpartition(".")[2])}
    modules = {name for name in named if name.startswith(FORBIDDEN_MODULES)}
    return [f"{module}: {name}" for name in sorted(of_nacl | names | modules)]


@pytest.mark.parametrize(
    "source",
    [
        "from nacl.signing import SigningKey",
        "import nacl.public",
        "from nacl import bindings",
        "from nacl.bindings import crypto_box_seal_open",
        "x = loader('nacl').SealedBox",
        "getattr(module, 'PrivateKey')",
        "def late():\n    from relay_service.client.envelope import seal",
    ],
)
def test_the_search_finds_what_it_looks_for(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suspect.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert len(faults_of("suspect")) >= 1


async def test_no_plaintext_in_the_relays_memory_logs_metrics_or_last_words(tmp_path: Path) -> None:
    flags = ("--log-level", "debug", "--metrics-listen", "127.0.0.1:0")
    python = ("-X", "faulthandler", "-m", "relay_service")
    async with relay_process(tmp_path, *flags, python=python) as (process, address):
        metrics = await process.wait_line(
            r'"port":(\d+).*"metrics are served"|"metrics are served".*"port":(\d+)'
        )
        async with grpc.aio.insecure_channel(address) as channel:
            cycle = parties(channel)
            await cycle.until_held()
            held = await asyncio.to_thread(memory_of, process.pid)
            # The search would find what is there.
            assert cycle.payload.ciphertext in held
            assert_blind("the memory, with the payload in it,", held)
            await cycle.finish()
            assert_blind(
                "the memory, with the result in it,", await asyncio.to_thread(memory_of, process.pid)
            )
        page = await asyncio.to_thread(_read, f"http://127.0.0.1:{metrics[1] or metrics[2]}/metrics")
        assert b"grpc_server_handled_total" in page
        assert_blind("the metrics", page)
        os.kill(process.pid, signal.SIGABRT)
        assert await process.wait() == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in process.stderr
    assert_blind("the output", "\n".join(process.lines).encode())


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
    return body


async def test_a_fault_in_the_relay_tells_nothing_of_what_it_carried(tmp_path: Path) -> None:
    """Neither plaintext nor ciphertext, whatever the exception says; callers and logs get an incident."""
    python = (str(Path(__file__).with_name("failing_relay.py")),)
    async with relay_process(tmp_path, "--log-level", "debug", python=python) as (process, address):
        async with grpc.aio.insecure_channel(address) as channel:
            cycle = parties(channel)
            await cycle.until_held()
            refusal = await cycle.device.refused("CompleteJob", cycle.result())
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
            stream = await cycle.device.connect(inventory={"leases": [cycle.lease]})
            await stream.send(call=daemon_plane_pb2.DaemonCall(id=1, complete_job=cycle.result()))
            on_stream = Refusal.of_status((await stream.next("reply")).error)
            assert on_stream.reason == "INTERNAL"
        incidents = [dict(each.metadata)["incident_id"] for each in (refusal, on_stream)]
        for incident in incidents:
            await process.wait_line(incident)
        process.terminate()
        assert await process.wait() == 0
    _assert_said_nothing(process, cycle)


def _assert_said_nothing(process: RunningProcess, cycle: Cycle) -> None:
    output = "\n".join(process.lines)
    assert "RuntimeError" in output
    # The line of code is there, what it has to say is not.
    assert "cannot store (" not in output
    assert repr(cycle.payload.ciphertext)[2:40] not in output
    assert base64.b64encode(cycle.payload.ciphertext).decode()[:40] not in output
    assert_blind("the output", output.encode())
