"""When the policy is asked, what becomes of its answer, and what callers learn of it."""

import asyncio
import json
from collections.abc import Callable, Iterator

import grpc
import pytest

from durable_service.admission import Admitted, Answer, Operation, Refused, TaskFacts
from sealwork.durable.v1 import worker_service_pb2
from service_common.logs import LOG_KEYS
from tests.durable_service.admission.conftest import PlayedPolicy
from tests.durable_service.durable_fixture import MAIL, DurableUnderTest, creation
from tests.durable_service.planes.every_method import Scene, begin, prepare

WHY = "the reason of the operator"


def refusing(*operations: Operation) -> Callable[[Operation, TaskFacts], Answer]:
    return lambda operation, _task: Refused(WHY) if operation in operations else Admitted("decision-1")


async def journal(service: DurableUnderTest) -> dict[str, dict[str, object]]:
    answer = await service.call("alice", "ListEvents", task_id="task", page_size=100)
    return {event.type: json.loads(event.data) for event in answer.events}


async def claim_next(
    service: DurableUnderTest, claim_id: str = "next"
) -> worker_service_pb2.ClaimNextResponse:
    answer: worker_service_pb2.ClaimNextResponse = await service.call(
        "worker", "ClaimNext", drivers=[MAIL], worker_id="worker-1", claim_id=claim_id
    )
    return answer


async def test_every_operation_is_asked_about_and_its_entry_names_the_decision(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    policy.answer = lambda operation, _task: Admitted(f"decision-{operation}")
    lease = await service.running()
    asked = prepare(lease, clock=service.clock)
    approval = (await service.call("worker", "PrepareAction", asked)).approval
    await service.call(
        "carol",
        "DecideApproval",
        task_id="task",
        approval_id=approval.approval_id,
        prepared_hash=approval.prepared_hash,
        decision=1,
    )
    await service.call("worker", "BeginDispatch", begin(lease))

    assert policy.asked == [
        ("create", "alice", "task"),
        ("claim", "worker", "task"),
        ("claim", "worker", "task"),
        ("decide", "carol", "task"),
        ("begin_dispatch", "worker", "task"),
    ]
    entries = await journal(service)
    assert entries["task.created"]["admissionId"] == "decision-create"
    assert entries["lease.granted"]["admissionId"] == "decision-claim"
    assert entries["approval.decided"]["admissionId"] == "decision-decide"
    assert entries["action.executing"]["admissionId"] == "decision-begin_dispatch"


async def test_a_task_that_is_refused_does_not_exist(service: DurableUnderTest, policy: PlayedPolicy) -> None:
    policy.answer = refusing(Operation.CREATE)
    refusal = await service.party("alice").refused("CreateTask", creation())

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ADMISSION_REFUSED")
    assert WHY not in str(refusal)
    assert (await service.party("alice").refused("GetTask", task_id="task")).reason == "TASK_NOT_FOUND"


async def test_a_repeat_is_answered_whatever_the_policy_says_by_now(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    await service.create()
    policy.answer = refusing(Operation.CREATE)

    assert (await service.create()).created is False


async def test_a_claim_that_is_refused_costs_no_attempt(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    await service.create()
    policy.answer = refusing(Operation.CLAIM)
    refusal = await service.party("worker").refused(
        "ClaimTask", task_id="task", worker_id="worker-1", claim_id="c"
    )

    assert refusal.reason == "ADMISSION_REFUSED"
    assert not (await service.task()).attempts


async def test_a_claim_that_is_refused_right_after_is_given_back(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    await service.create()
    answers: Iterator[Answer] = iter([Admitted("before"), Refused(WHY)])
    policy.answer = lambda _operation, _task: next(answers)
    refusal = await service.party("worker").refused(
        "ClaimTask", task_id="task", worker_id="worker-1", claim_id="c"
    )

    assert refusal.reason == "ADMISSION_REFUSED"
    task = await service.task()
    assert (len(task.attempts), task.fence, task.HasField("lease")) == (1, 1, False)
    assert "lease.released" in await journal(service)


async def test_the_next_task_is_one_that_is_admitted(service: DurableUnderTest, policy: PlayedPolicy) -> None:
    for number in range(12):
        await service.create(f"no-{number}")
    await service.create("yes")
    policy.answer = lambda _operation, task: Admitted("d") if task.task_id == "yes" else Refused(WHY)

    assert (await claim_next(service)).claimed.task.task_id == "yes"
    assert not (await claim_next(service, "again")).HasField("claimed")


async def test_a_dispatch_that_is_refused_is_not_begun(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    lease = await service.running()
    await service.call("worker", "PrepareAction", prepare(lease))
    policy.answer = refusing(Operation.BEGIN_DISPATCH)

    assert (
        await service.party("worker").refused("BeginDispatch", begin(lease))
    ).reason == "ADMISSION_REFUSED"
    assert not (await service.task()).open_action_ids


async def test_a_holder_without_its_lease_is_told_to_stop(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    lease = await service.running()
    await service.call("worker", "PrepareAction", prepare(lease))
    await service.call("worker", "ReleaseTask", lease=lease)
    policy.answer = refusing(Operation.BEGIN_DISPATCH)

    assert (await service.party("worker").refused("BeginDispatch", begin(lease))).reason == "LEASE_LOST"


async def test_a_decision_that_is_refused_tells_others_nothing(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    scene = await Scene(service).build()
    policy.answer = refusing(Operation.DECIDE)
    request = scene.request("DecideApproval")

    assert (await service.party("carol").refused("DecideApproval", request)).reason == "ADMISSION_REFUSED"
    assert (await service.party("dave").refused("DecideApproval", request)).reason == "APPROVAL_NOT_FOUND"


async def test_an_extension_that_is_refused_is_not_written(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    await service.create()
    policy.answer = refusing(Operation.EXTEND)
    refusal = await service.party("admin").refused(
        "UpdateExtension", task_id="task", name="slot", value=b"1", expected_revision=0
    )

    assert refusal.reason == "ADMISSION_REFUSED"


async def test_a_claim_to_recover_is_asked_about_as_one(
    service: DurableUnderTest, policy: PlayedPolicy
) -> None:
    await Scene(service).build()
    await service.pass_time(60_000)
    policy.answer = refusing(Operation.RECOVER)
    recovery = {"task_id": "task", "worker_id": "desk", "claim_id": "r"}

    assert (
        await service.party("operator").refused("ClaimForRecovery", **recovery)
    ).reason == "ADMISSION_REFUSED"
    policy.answer = refusing(Operation.CLAIM)
    assert (await service.call("operator", "ClaimForRecovery", **recovery)).HasField("claimed")


async def test_a_policy_that_fails(service: DurableUnderTest, policy: PlayedPolicy) -> None:
    def fail(_operation: Operation, _task: TaskFacts) -> Answer:
        raise RuntimeError("secret text")

    policy.answer = fail
    refusal = await service.party("alice").refused("CreateTask", creation())

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "POLICY_UNAVAILABLE")
    assert refusal.retry_after_ms == 1_000
    assert "secret" not in str(refusal)


async def test_a_policy_that_says_nothing(service: DurableUnderTest, policy: PlayedPolicy) -> None:
    policy.silent = True
    refused = asyncio.ensure_future(service.party("alice").refused("CreateTask", creation()))
    await asyncio.wait_for(policy.heard[Operation.CREATE].wait(), 10)
    await service.pass_time(2_000)

    assert (await refused).reason == "POLICY_UNAVAILABLE"


@pytest.mark.parametrize("admitted", [True, False])
async def test_a_task_is_woken_when_the_policy_admits_it(
    service: DurableUnderTest, policy: PlayedPolicy, admitted: bool
) -> None:
    lease = await service.running()
    asked = prepare(lease, clock=service.clock)
    approval = (await service.call("worker", "PrepareAction", asked)).approval
    await service.call("worker", "BeginDispatch", begin(lease))
    await service.call("worker", "ReleaseTask", lease=lease)
    stream = service.party("worker").open()
    await stream.connect(drivers=[MAIL])
    policy.answer = refusing() if admitted else refusing(Operation.WAKE)
    await service.call(
        "carol",
        "DecideApproval",
        task_id="task",
        approval_id=approval.approval_id,
        prepared_hash=approval.prepared_hash,
        decision=1,
    )

    await asyncio.wait_for(policy.heard[Operation.WAKE].wait(), 10)
    if admitted:
        assert (await stream.next("task_woken")).task_id == "task"
    else:
        items = await stream.settle()
        assert not any(item.HasField("task_woken") for item in items)
    await stream.close()


def test_what_is_logged_is_a_key_of_the_log() -> None:
    from durable_service.process import DURABLE_LOG_KEYS

    assert {"caller", "tenant", "task", "decision", "problem"} <= DURABLE_LOG_KEYS | LOG_KEYS
