"""The ledger of outside effects, and the words of approvers."""

import grpc
import pytest

from durable_service.core.errors import Reason
from durable_service.planes.refusals import CODES
from sealwork.durable.v1 import action_pb2, action_service_pb2, approval_pb2, error_reason_pb2, task_pb2
from tests.durable_service.durable_fixture import DAY_MS, DurableUnderTest
from tests.durable_service.planes.every_method import ARGS, Scene, begin, prepare


class TestDispatching:
    async def test_the_hashes_are_those_of_the_protocol(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        action = (await service.call("worker", "PrepareAction", prepare(lease))).action

        assert (action.state, action.args) == (action_pb2.ACTION_STATE_PREPARED, ARGS)
        assert action.prepared_hash.startswith("sha256:")
        assert action.idempotency_key.startswith("sha256:")
        assert list(action.grant_refs) == ["grant:send"]

    async def test_prepare_begin_confirm(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        await service.call("worker", "PrepareAction", prepare(lease))
        begun = await service.call("worker", "BeginDispatch", begin(lease))
        confirmed = await service.call(
            "worker", "ConfirmAction", lease=lease, action_id="send", dispatch_id="dispatch-1", result_ref="r"
        )
        again = await service.call("worker", "BeginDispatch", begin(lease, dispatch_id="dispatch-2"))

        assert begun.dispatch.action.dispatch_fence == lease.fence
        assert confirmed.action_state == action_pb2.ACTION_STATE_CONFIRMED
        assert again.already_confirmed.result_ref == "r"

    async def test_a_word_on_another_dispatch(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        await service.call("worker", "PrepareAction", prepare(lease))
        await service.call("worker", "BeginDispatch", begin(lease))
        refusal = await service.party("worker").refused(
            "ConfirmAction", lease=lease, action_id="send", dispatch_id="other", result_ref="r"
        )

        assert refusal.reason == "ILLEGAL_TRANSITION"

    async def test_an_open_outcome_stands_against_the_end(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        refusal = await service.party("worker").refused("CompleteTask", lease=scene.lease)

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RECOVERY_REQUIRED")
        assert refusal.metadata["action_ids"] == "asked,lost,sent"

    async def test_another_connector(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        await service.call("worker", "PrepareAction", prepare(lease))
        request = begin(lease)
        request.connector_version = "fixture@2"

        assert (await service.party("worker").refused("BeginDispatch", request)).reason == "CONNECTOR_VERSION"

    async def test_lists(self, service: DurableUnderTest) -> None:
        await Scene(service).build()
        first = await service.call("alice", "ListActions", task_id="task", page_size=3)
        rest = await service.call(
            "alice", "ListActions", task_id="task", page_size=3, page_token=first.next_page_token
        )
        unknown = await service.call(
            "alice",
            "ListActions",
            task_id="task",
            states=[action_pb2.ACTION_STATE_UNKNOWN],
            include_args=True,
        )

        assert [action.action_id for action in first.actions] == ["send", "sent", "lost"]
        assert not first.actions[0].HasField("args")
        assert ([action.action_id for action in rest.actions], rest.next_page_token) == (["asked"], "")
        assert [(action.action_id, action.args) for action in unknown.actions] == [("lost", ARGS)]


class TestApprovals:
    async def test_what_the_approver_sees(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        listed = (await service.call("carol", "ListPendingApprovals")).approvals
        shown = await service.call("carol", "GetApproval", task_id="task", approval_id=scene.approval_id)

        assert [approval.approval_id for approval in listed] == [scene.approval_id]
        assert shown.approval == listed[0]
        assert (shown.action.destination, shown.action.args) == ("inbox", ARGS)
        assert shown.identity.actor_id == "alice"
        assert shown.approval.expire_time.ToMilliseconds() == service.clock.now_ms() + DAY_MS

    async def test_suspended_decided_dispatched(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        suspended = await service.call("worker", "BeginDispatch", begin(scene.lease, "asked"))
        await service.call("carol", "DecideApproval", scene.request("DecideApproval"))
        await service.call("worker", "ReleaseTask", lease=scene.lease)

        assert suspended.suspended.approval_id == scene.approval_id
        assert suspended.status.state == task_pb2.TASK_STATE_AWAITING_APPROVAL

    async def test_what_was_denied_is_rejected(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        request = scene.request("DecideApproval")
        request.decision, request.note = 2, "not today"
        decided = await service.call("carol", "DecideApproval", request)
        begun = await service.call("worker", "BeginDispatch", begin(scene.lease, "asked"))

        assert (decided.approval.state, decided.approval.note) == (
            approval_pb2.APPROVAL_STATE_DENIED,
            "not today",
        )
        assert begun.rejected.reason == action_service_pb2.REJECTION_REASON_DENIED
        assert begun.rejected.approval_id == scene.approval_id

    async def test_another_decision_afterwards(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        await service.call("carol", "DecideApproval", scene.request("DecideApproval"))
        request = scene.request("DecideApproval")
        request.decision = 2

        assert (await service.party("carol").refused("DecideApproval", request)).reason == "APPROVAL_DECIDED"

    async def test_what_does_not_fit_is_not_told_apart(self, service: DurableUnderTest) -> None:
        asked = prepare(await service.running(), clock=service.clock)
        asked.approval.expire_time.FromMilliseconds(service.clock.now_ms() + 1_000)
        approval = (await service.call("worker", "PrepareAction", asked)).approval
        decision = {"task_id": "task", "approval_id": approval.approval_id, "decision": 1}
        other_hash = await service.party("carol").refused(
            "DecideApproval", prepared_hash="sha256:" + "0" * 64, **decision
        )
        await service.pass_time(1_000)
        late = await service.party("carol").refused(
            "DecideApproval", prepared_hash=approval.prepared_hash, **decision
        )

        assert other_hash.reason == late.reason == "APPROVAL_BINDING"
        assert (other_hash.message, other_hash.metadata) == (late.message, late.metadata)

    async def test_pages_by_urgency(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        for number in (3, 1, 2):
            request = prepare(lease, f"action-{number}", service.clock)
            request.approval.expire_time.FromMilliseconds(service.clock.now_ms() + number * 1_000)
            await service.call("worker", "PrepareAction", request)
        first = await service.call("carol", "ListPendingApprovals", page_size=2)
        rest = await service.call(
            "carol", "ListPendingApprovals", page_size=2, page_token=first.next_page_token
        )

        assert [each.action_id for each in first.approvals] == ["action-1", "action-2"]
        assert [each.action_id for each in rest.approvals] == ["action-3"]
        assert rest.next_page_token == ""
        assert not (await service.call("carol", "ListPendingApprovals", task_id="other")).approvals

    @pytest.mark.parametrize("nanos", [1, 999_999])
    async def test_an_expiry_in_whole_milliseconds(self, service: DurableUnderTest, nanos: int) -> None:
        request = prepare(await service.running(), clock=service.clock)
        request.approval.expire_time.nanos += nanos

        refusal = await service.party("worker").refused("PrepareAction", request)
        assert refusal.fields == ("approval.expire_time",)

    async def test_an_expiry_that_is_past(self, service: DurableUnderTest) -> None:
        request = prepare(await service.running(), clock=service.clock)
        request.approval.expire_time.FromMilliseconds(service.clock.now_ms())

        assert (await service.party("worker").refused("PrepareAction", request)).reason == "APPROVAL_EXPIRY"


class TestReasons:
    def test_each_reason_of_the_core_has_its_code(self) -> None:
        documented = {}
        for value in error_reason_pb2.ErrorReason.DESCRIPTOR.values:
            documented[value.name.removeprefix("ERROR_REASON_")] = value
        for reason in Reason:
            if reason is Reason.INVARIANT:
                continue
            assert reason.value in documented
            assert reason in CODES

    def test_the_codes_are_the_documented_ones(self) -> None:
        from pathlib import Path

        source = Path(__file__).parents[3] / "protos/sealwork/durable/v1/error_reason.proto"
        code = ""
        found = {}
        for line in source.read_text(encoding="utf-8").splitlines():
            if "// Code: " in line:
                code = line.split("// Code: ")[1].split(".")[0]
            elif "ERROR_REASON_" in line and "=" in line:
                found[line.split("=")[0].strip().removeprefix("ERROR_REASON_")] = code

        assert {reason.value: CODES[reason].name for reason in CODES} == {
            reason.value: found[reason.value] for reason in CODES
        }
