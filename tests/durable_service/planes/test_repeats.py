"""Every call that writes, made twice: an answer that was lost is had again, and nothing happens twice."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from sealwork.durable.v1 import record_service_pb2, task_pb2
from tests.durable_service.durable_fixture import MAIL, DurableUnderTest, creation, serving
from tests.durable_service.planes.every_method import BYTES, Scene, begin, header, prepare
from tests.durable_service.raw_client import METHODS, request_type

CALLERS = {
    "CreateTask": "alice",
    "CancelTask": "alice",
    "DecideApproval": "carol",
    "UpdateExtension": "admin",
    "PurgeTasks": "admin",
}
# What tells a repeat from the first call, and the time: the rest of an answer has to be the same.
TOLD_APART = ("created", "duplicate", "already_decided")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with serving(retention_ms=0) as service:
        yield await Scene(service).build()


async def made(scene: Scene, name: str) -> Any:
    """The request of a method in a scene where it does something."""
    service = scene.service
    if name == "CreateTask":
        return creation("another")
    if name == "ClaimNext":
        await service.create("another")
        return request_type(name)(claim_id="claim-2", worker_id="w", drivers=[MAIL])
    if name == "ClaimTask":
        await service.create("another")
        return request_type(name)(task_id="another", claim_id="claim-2", worker_id="w")
    if name == "ClaimForRecovery":
        await service.pass_time(60_000)
    if name in {"CompleteTask", "FailTask", "YieldTask"}:
        lease = await service.running("another")
        delay = {"delay": Duration(seconds=9)} if name == "YieldTask" else {}
        return request_type(name)(lease=lease, **delay)
    if name == "AcknowledgeCancellation":
        lease = await service.running("another")
        await service.call("alice", "CancelTask", task_id="another")
        return request_type(name)(lease=lease)
    if name == "RenewLeases":
        return request_type(name)(leases=[scene.lease])
    if name == "PurgeTasks":
        await service.create("another")
        await service.call("alice", "CancelTask", task_id="another")
        return request_type(name)(task_ids=["another"])
    return scene.request(name)


WRITES = [
    name
    for name, method in METHODS.items()
    if not method.server_streaming
    and not method.client_streaming
    and not name.startswith(("Get", "List", "Wait"))
]


@pytest.mark.parametrize("name", WRITES)
async def test_a_repeat_is_answered_alike_and_changes_nothing(scene: Scene, name: str) -> None:
    request = await made(scene, name)
    caller = CALLERS.get(name, "worker")
    first = await scene.service.call(caller, name, request)
    state = await dump(scene.service)
    again = await scene.service.call(caller, name, request)

    assert await dump(scene.service) == state
    if name == "PurgeTasks":
        # What is gone stays gone; the answer says so.
        assert [skipped.task_id for skipped in again.skipped] == list(first.purged_task_ids)
        return
    for message in (first, again):
        for field in TOLD_APART:
            if field in message.DESCRIPTOR.fields_by_name:
                message.ClearField(field)
        # Some commands are a change by themselves, as in every implementation of the model.
        if message.DESCRIPTOR.fields_by_name.get("status"):
            message.status.ClearField("revision")
    assert again == first


async def dump(service: DurableUnderTest) -> str:
    """Everything but how often a task was written."""
    text = []
    for task in (await service.call("operator", "ListTasks", view=task_pb2.TASK_VIEW_OWNER)).tasks:
        full = await service.task(task.task_id)
        full.ClearField("revision")
        actions = await service.call("operator", "ListActions", task_id=task.task_id, include_args=True)
        events = await service.call("operator", "ListEvents", task_id=task.task_id, page_size=1_000)
        text += [str(full), str(actions), str(events)]
    return "".join(text)


async def test_the_table_has_every_write() -> None:
    assert len(WRITES) == 23


class TestWhatTellsARepeat:
    async def test_flags(self, scene: Scene) -> None:
        call = scene.service.call
        first = await call("worker", "AppendEvent", scene.request("AppendEvent"))
        again = await call("worker", "AppendEvent", scene.request("AppendEvent"))
        reserved = [(await call("worker", "ReserveBudget", scene.request("ReserveBudget"))) for _ in (1, 2)]
        decided = [(await call("carol", "DecideApproval", scene.request("DecideApproval"))) for _ in (1, 2)]
        prepared = [(await call("worker", "PrepareAction", prepare(scene.lease, "new"))) for _ in (1, 2)]

        assert (first.duplicate, again.duplicate) == (False, True)
        assert first.sequence == again.sequence
        assert [each.duplicate for each in reserved] == [False, True]
        assert reserved[1].usage.reserved_tokens == 5
        assert [each.already_decided for each in decided] == [False, True]
        assert [each.created for each in prepared] == [True, False]

    async def test_an_upload(self, scene: Scene) -> None:
        chunk = record_service_pb2.PutArtifactRequest(chunk=BYTES)
        messages = [header(scene.lease, artifact_id="new"), chunk]
        answers = [await scene.service.party("worker").upload("PutArtifact", messages) for _ in (1, 2)]

        assert [each.created for each in answers] == [True, False]
        assert answers[0].artifact == answers[1].artifact


class TestIdsThatWereUsedForSomethingElse:
    async def test_reservation(self, scene: Scene) -> None:
        await scene.service.call("worker", "ReserveBudget", scene.request("ReserveBudget"))
        other = scene.request("ReserveBudget")
        other.tokens = 6
        refusal = await scene.service.party("worker").refused("ReserveBudget", other)

        assert refusal.reason == "REQUEST_ID_REUSED"

    async def test_event(self, scene: Scene) -> None:
        await scene.service.call("worker", "AppendEvent", scene.request("AppendEvent"))
        other = scene.request("AppendEvent")
        other.data = b"2"

        assert (
            await scene.service.party("worker").refused("AppendEvent", other)
        ).reason == "REQUEST_ID_REUSED"

    async def test_action(self, scene: Scene) -> None:
        other = prepare(scene.lease)
        other.args = b'{"message":"goodbye"}'
        refusal = await scene.service.party("worker").refused("PrepareAction", other)

        assert refusal.reason == "ACTION_MISMATCH"
        assert refusal.metadata["existing_hash"] == scene.prepared_hash
        assert refusal.metadata["requested_hash"] != scene.prepared_hash

    async def test_claim(self, scene: Scene) -> None:
        await scene.service.create("another")
        refusal = await scene.service.party("worker").refused(
            "ClaimTask", task_id="another", claim_id="claim-of-task", worker_id="worker-1"
        )

        assert refusal.reason == "REQUEST_ID_REUSED"

    async def test_a_claim_whose_lease_is_over_is_spent(self, scene: Scene) -> None:
        await scene.service.pass_time(60_000)
        by_id = await scene.service.party("worker").refused(
            "ClaimTask", task_id="task", claim_id="claim-of-task", worker_id="worker-1"
        )
        next_ = await scene.service.party("worker").refused(
            "ClaimNext", claim_id="claim-of-task", worker_id="worker-1", drivers=[MAIL]
        )

        assert by_id.reason == next_.reason == "LEASE_LOST"

    async def test_dispatch(self, scene: Scene) -> None:
        refusal = await scene.service.party("worker").refused(
            "BeginDispatch", begin(scene.lease, "sent", "dispatch-2")
        )

        assert refusal.reason == "RECOVERY_REQUIRED"
        assert refusal.metadata["action_ids"] == "sent"
