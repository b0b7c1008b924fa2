"""The service as a process of its own, called over real gRPC and killed."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from sealwork.durable.v1 import lease_pb2, record_service_pb2, task_pb2
from tests.durable_service.durable_fixture import MAIL, creation, durable_process, signer_of
from tests.durable_service.planes.every_method import BYTES, begin, header, prepare
from tests.durable_service.raw_client import Party, WorkerStream
from tests.harness.processes import RunningProcess

pytestmark = pytest.mark.process


class Parties:
    """Everybody, on one channel to one process."""

    def __init__(self, process: RunningProcess, channel: grpc.aio.Channel) -> None:
        self.process = process
        self._channel = channel

    def __getitem__(self, name: str) -> Party:
        return Party(self._channel, name, signer_of(name), lambda: time.time_ns() // 1_000_000)


@asynccontextmanager
async def served(folder: Path, *flags: str) -> AsyncIterator[Parties]:
    async with (
        durable_process(folder, *flags) as (process, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield Parties(process, channel)


async def test_a_task_from_its_creation_to_its_end(tmp_path: Path) -> None:
    async with served(tmp_path) as parties:
        created = await parties["alice"].call("CreateTask", creation())
        claimed = (
            await parties["worker"].call(
                "ClaimNext", claim_id="claim-1", worker_id="worker-1", drivers=[MAIL]
            )
        ).claimed
        lease = lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=claimed.lease.fence)
        ended = await parties["worker"].call("CompleteTask", lease=lease, result_ref="result")
        waited = await parties["alice"].call("WaitTask", task_id="task", view=task_pb2.TASK_VIEW_OWNER)

        assert created.created
        assert claimed.task.task_id == "task"
        assert ended.status.state == task_pb2.TASK_STATE_COMPLETED
        assert (waited.met, waited.task.result_ref) == (True, "result")

        parties.process.terminate()
        assert await parties.process.wait() == 0


async def test_what_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    async with served(tmp_path) as parties:
        await parties["alice"].call("CreateTask", creation())
        claim = {"task_id": "task", "claim_id": "claim-1", "worker_id": "worker-1"}
        claimed = (await parties["worker"].call("ClaimTask", **claim)).claimed
        lease = lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=claimed.lease.fence)
        await parties["worker"].call("PrepareAction", prepare(lease))
        dispatched = await parties["worker"].call("BeginDispatch", begin(lease))
        chunk = record_service_pb2.PutArtifactRequest(chunk=BYTES)
        await parties["worker"].upload("PutArtifact", [header(lease), chunk])
        before = (await parties["operator"].call("GetTask", task_id="task", view=3)).task
        parties.process.kill()
        assert await parties.process.wait() == -9

    async with served(tmp_path) as parties:
        after = (await parties["operator"].call("GetTask", task_id="task", view=3)).task
        for task in (before, after):
            task.lease.ClearField("remaining")
        assert after == before
        # The worker never noticed: its lease lasts, and what it repeats is answered as before.
        again = await parties["worker"].call("BeginDispatch", begin(lease))
        assert again.dispatch == dispatched.dispatch
        assert (await parties["worker"].call("ClaimTask", **claim)).claimed.lease.fence == lease.fence
        verdict = (await parties["worker"].call("RenewLeases", leases=[lease])).verdicts[0]
        assert verdict.state == lease_pb2.LEASE_STATE_ACTIVE
        async with parties["alice"].watch("GetArtifact", task_id="task", artifact_id="artifact") as frames:
            parts = [frame async for frame in frames]
        assert b"".join(part.chunk for part in parts) == BYTES
        stream = WorkerStream(parties["worker"])
        verdicts = await stream.connect(inventory={"leases": [lease]})
        assert [each.state for each in verdicts.verdicts] == [lease_pb2.LEASE_STATE_ACTIVE]
        await stream.close()


async def test_a_principal_that_is_cut_off_loses_its_stream_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as parties:
        stream = WorkerStream(parties["worker"])
        await stream.connect(drivers=[MAIL])
        path = tmp_path / "principals.json"
        path.write_text(path.read_text().replace('"id": "worker"', '"disabled": true, "id": "worker"'))

        assert (await stream.refusal()).reason == "PRINCIPAL_REVOKED"
        refusal = await parties["worker"].refused("ClaimNext", claim_id="c", worker_id="w", drivers=[MAIL])
        assert refusal.reason == "PRINCIPAL_REVOKED"
        await stream.close()


async def test_a_shutdown_moves_streams_and_watches(tmp_path: Path) -> None:
    async with served(tmp_path, "--drain-grace", "10s") as parties:
        stream = WorkerStream(parties["worker"])
        await stream.connect(drivers=[MAIL])
        async with parties["alice"].watch("WatchTasks") as frames:
            await frames.next()
            parties.process.terminate()
            assert (await frames.next()).HasField("drain_notice")
        assert (await stream.next("drain_notice")).reason == 1
        await stream.send(goodbye={"reason": "moving"})
        assert await parties.process.wait() == 0
        await stream.close()


async def test_one_process_a_file(tmp_path: Path) -> None:
    async with served(tmp_path):
        with pytest.raises(AssertionError, match="the output ended") as raised:
            async with durable_process(tmp_path):
                pass
    notes = "\n".join(raised.value.__notes__)

    assert "Error: --store sqlite:///" in notes
    assert "(exit status 2)" in notes


async def test_many_claim_at_once_and_each_task_has_one_holder(tmp_path: Path) -> None:
    async with served(tmp_path) as parties:
        names = [f"task-{number}" for number in range(30)]
        await asyncio.gather(*(parties["alice"].call("CreateTask", creation(name)) for name in names))

        async def claim(number: int) -> str:
            answer = await parties["worker"].call(
                "ClaimNext", claim_id=f"c-{number}", worker_id=f"worker-{number}", drivers=[MAIL]
            )
            return str(answer.claimed.task.task_id)

        won = await asyncio.gather(*(claim(number) for number in range(60)))

        assert sorted(name for name in won if name) == sorted(names)


async def test_the_life_of_many_tasks_on_one_stream(tmp_path: Path) -> None:
    async with served(tmp_path) as parties:
        stream = WorkerStream(parties["worker"])
        await stream.connect(drivers=[MAIL], limit=1_000)
        done = []
        for number in range(20):
            await parties["alice"].call("CreateTask", creation(f"task-{number}"))
            await stream.next("tasks_available")
            claimed = (
                await parties["worker"].call(
                    "ClaimNext", claim_id=f"c-{number}", worker_id="worker-1", drivers=[MAIL]
                )
            ).claimed
            lease = lease_pb2.LeaseRef(task_id=claimed.task.task_id, fence=claimed.lease.fence)
            await stream.ask(prepare_action=prepare(lease))
            await stream.ask(begin_dispatch=begin(lease))
            confirm = {"lease": lease, "action_id": "send", "dispatch_id": "dispatch-1", "result_ref": "r"}
            await stream.ask(confirm_action=confirm)
            reply = await stream.ask(complete_task={"lease": lease})
            done.append((reply.complete_task.status.task_id, reply.complete_task.status.state))
        await stream.close()

        assert done == [(f"task-{number}", task_pb2.TASK_STATE_COMPLETED) for number in range(20)]
