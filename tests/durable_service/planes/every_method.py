"""One good request for each method that is about a task, made in a scene in which it would be answered."""

from typing import Any

from google.protobuf.duration_pb2 import Duration

from durable_service.core.binding import bytes_digest
from sealwork.durable.v1 import (
    action_service_pb2,
    admin_service_pb2,
    approval_service_pb2,
    record_service_pb2,
    task_service_pb2,
    worker_service_pb2,
)
from service_common.clocks import ManualClock
from tests.durable_service.durable_fixture import DAY_MS, MAIL, DurableUnderTest, creation
from tests.durable_service.raw_client import request_type

ARGS = b'{"message":"hello"}'
BYTES = b"the bytes of an artifact"
HOUR = Duration(seconds=3_600)


def prepare(lease: Any, action_id: str = "send", clock: ManualClock | None = None) -> Any:
    """An action, which carol has to approve when a clock is given."""
    request = action_service_pb2.PrepareActionRequest(
        lease=lease, action_id=action_id, connector_version="fixture@1", destination="inbox", args=ARGS
    )
    if clock is not None:
        request.approval.approver_id = "carol"
        request.approval.expire_time.FromMilliseconds(clock.now_ms() + DAY_MS)
    return request


def begin(lease: Any, action_id: str = "send", dispatch_id: str = "dispatch-1") -> Any:
    return action_service_pb2.BeginDispatchRequest(
        lease=lease, action_id=action_id, dispatch_id=dispatch_id, connector_version="fixture@1"
    )


def header(lease: Any, data: bytes = BYTES, **fields: Any) -> Any:
    given: dict[str, Any] = {
        "lease": lease,
        "artifact_id": "artifact",
        "size_bytes": len(data),
        "digest": bytes_digest(data),
        "media_type": "text/plain",
        "time_to_live": HOUR,
    }
    return record_service_pb2.PutArtifactRequest(header=record_service_pb2.ArtifactHeader(**(given | fields)))


class Scene:
    """A running task of alice's, held by worker, with one of everything.

    `send` is prepared, `sent` is executing, `lost` is unknown and `asked` waits for carol.
    """

    def __init__(self, service: DurableUnderTest) -> None:
        self.service = service
        self.lease: Any = None
        self.approval_id = ""
        self.prepared_hash = ""

    async def build(self) -> "Scene":
        call = self.service.call
        self.lease = await self.service.running()
        for action_id in ("send", "sent", "lost"):
            answer = await call("worker", "PrepareAction", prepare(self.lease, action_id))
            self.prepared_hash = answer.action.prepared_hash
        asked = await call("worker", "PrepareAction", prepare(self.lease, "asked", self.service.clock))
        self.approval_id = asked.approval.approval_id
        for action_id in ("sent", "lost"):
            await call("worker", "BeginDispatch", begin(self.lease, action_id))
        await call(
            "worker", "MarkActionUnknown", lease=self.lease, action_id="lost", dispatch_id="dispatch-1"
        )
        await call("worker", "PutCheckpoint", self.request("PutCheckpoint"))
        chunk = record_service_pb2.PutArtifactRequest(chunk=BYTES)
        await self.service.party("worker").upload("PutArtifact", [header(self.lease), chunk])
        return self

    def request(self, name: str) -> Any:
        """The request of a method."""
        lease = {"lease": self.lease}
        dispatched = {**lease, "action_id": "sent", "dispatch_id": "dispatch-1"}
        claim = {"task_id": "task", "claim_id": "claim-2", "worker_id": "worker-1"}
        fields: dict[str, Any] = {
            "GetTask": {"task_id": "task"},
            "CancelTask": {"task_id": "task"},
            "WaitTask": {"task_id": "task"},
            "ClaimTask": claim,
            "ClaimForRecovery": claim,
            "ReleaseTask": lease,
            "YieldTask": {**lease, "delay": HOUR},
            "ReserveBudget": {**lease, "reservation_id": "r-1", "tokens": 5, "cost_micros": 6},
            "CompleteTask": lease,
            "FailTask": {**lease, "failure": "it broke"},
            "AcknowledgeCancellation": lease,
            "ConfirmAction": {**dispatched, "result_ref": "result"},
            "MarkActionUnknown": dispatched,
            "WithdrawDispatch": dispatched,
            "ReconcileAction": {
                **lease,
                "action_id": "lost",
                "prepared_hash": self.prepared_hash,
                "connector_version": "fixture@1",
                "finding": action_service_pb2.FINDING_ABSENT,
                "evidence_ref": "evidence",
            },
            "ListActions": {"task_id": "task"},
            "GetApproval": {"task_id": "task", "approval_id": self.approval_id},
            "DecideApproval": {
                "task_id": "task",
                "approval_id": self.approval_id,
                "prepared_hash": self.prepared_hash,
                "decision": approval_service_pb2.APPROVAL_DECISION_APPROVED,
            },
            "AppendEvent": {**lease, "event_id": "event-1", "type": "note", "data": b"{}"},
            "ListEvents": {"task_id": "task"},
            "WatchEvents": {"task_id": "task"},
            "GetArtifact": {"task_id": "task", "artifact_id": "artifact"},
            "PutCheckpoint": {**lease, "checkpoint_id": "c", "value": b"[1]", "time_to_live": HOUR},
            "GetSnapshot": {"task_id": "task", "checkpoint_id": "c"},
            "UpdateExtension": {"task_id": "task", "name": "x", "value": b"1", "expected_revision": 0},
        }
        if name == "PrepareAction":
            return prepare(self.lease, "new")
        if name == "BeginDispatch":
            return begin(self.lease)
        if name == "PutArtifact":
            return header(self.lease)
        return request_type(name)(**fields[name])


# Methods that name no task: what they answer is of the caller's own tenant and roles anyway.
WITHOUT_A_TASK = {
    "CreateTask": creation(),
    "ListTasks": task_service_pb2.ListTasksRequest(),
    "WatchTasks": task_service_pb2.WatchTasksRequest(),
    "Session": None,
    "ClaimNext": worker_service_pb2.ClaimNextRequest(claim_id="c", worker_id="w", drivers=[MAIL]),
    "RenewLeases": None,
    "ListPendingApprovals": approval_service_pb2.ListPendingApprovalsRequest(),
    "WatchApprovals": approval_service_pb2.WatchApprovalsRequest(),
    "GetStats": admin_service_pb2.GetStatsRequest(),
    "ListUnknownActions": admin_service_pb2.ListUnknownActionsRequest(),
    "PurgeTasks": admin_service_pb2.PurgeTasksRequest(),
    "Watch": admin_service_pb2.DurableAdminServiceWatchRequest(),
}
