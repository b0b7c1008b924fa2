"""The durable service's methods."""

from typing import Final

from sealwork.durable.v1 import action_service_pb2 as actions
from sealwork.durable.v1 import admin_service_pb2 as admin
from sealwork.durable.v1 import approval_service_pb2 as approvals
from sealwork.durable.v1 import record_service_pb2 as records
from sealwork.durable.v1 import task_service_pb2 as tasks
from sealwork.durable.v1 import worker_service_pb2 as workers
from service_common.unary_calls import Method

_TASK: Final = "/sealwork.durable.v1.TaskService/"
_WORKER: Final = "/sealwork.durable.v1.WorkerService/"
_ACTION: Final = "/sealwork.durable.v1.ActionService/"
_APPROVAL: Final = "/sealwork.durable.v1.ApprovalService/"
_RECORD: Final = "/sealwork.durable.v1.RecordService/"
_ADMIN: Final = "/sealwork.durable.v1.DurableAdminService/"

CREATE_TASK = Method(_TASK + "CreateTask", tasks.CreateTaskRequest, tasks.CreateTaskResponse)
GET_TASK = Method(_TASK + "GetTask", tasks.GetTaskRequest, tasks.GetTaskResponse)
LIST_TASKS = Method(_TASK + "ListTasks", tasks.ListTasksRequest, tasks.ListTasksResponse)
CANCEL_TASK = Method(_TASK + "CancelTask", tasks.CancelTaskRequest, tasks.CancelTaskResponse)
WAIT_TASK = Method(_TASK + "WaitTask", tasks.WaitTaskRequest, tasks.WaitTaskResponse)
WATCH_TASKS = Method(_TASK + "WatchTasks", tasks.WatchTasksRequest, tasks.WatchTasksResponse)

WORKER_SESSION: Final = _WORKER + "Session"
CLAIM_NEXT = Method(_WORKER + "ClaimNext", workers.ClaimNextRequest, workers.ClaimNextResponse)
CLAIM_TASK = Method(_WORKER + "ClaimTask", workers.ClaimTaskRequest, workers.ClaimTaskResponse)
CLAIM_FOR_RECOVERY = Method(
    _WORKER + "ClaimForRecovery", workers.ClaimForRecoveryRequest, workers.ClaimForRecoveryResponse
)
RENEW_LEASES = Method(_WORKER + "RenewLeases", workers.RenewLeasesRequest, workers.RenewLeasesResponse)
RELEASE_TASK = Method(_WORKER + "ReleaseTask", workers.ReleaseTaskRequest, workers.ReleaseTaskResponse)
YIELD_TASK = Method(_WORKER + "YieldTask", workers.YieldTaskRequest, workers.YieldTaskResponse)
RESERVE_BUDGET = Method(
    _WORKER + "ReserveBudget", workers.ReserveBudgetRequest, workers.ReserveBudgetResponse
)
COMPLETE_TASK = Method(_WORKER + "CompleteTask", workers.CompleteTaskRequest, workers.CompleteTaskResponse)
FAIL_TASK = Method(_WORKER + "FailTask", workers.FailTaskRequest, workers.FailTaskResponse)
ACKNOWLEDGE_CANCELLATION = Method(
    _WORKER + "AcknowledgeCancellation",
    workers.AcknowledgeCancellationRequest,
    workers.AcknowledgeCancellationResponse,
)

PREPARE_ACTION = Method(
    _ACTION + "PrepareAction", actions.PrepareActionRequest, actions.PrepareActionResponse
)
BEGIN_DISPATCH = Method(
    _ACTION + "BeginDispatch", actions.BeginDispatchRequest, actions.BeginDispatchResponse
)
CONFIRM_ACTION = Method(
    _ACTION + "ConfirmAction", actions.ConfirmActionRequest, actions.ConfirmActionResponse
)
MARK_ACTION_UNKNOWN = Method(
    _ACTION + "MarkActionUnknown", actions.MarkActionUnknownRequest, actions.MarkActionUnknownResponse
)
WITHDRAW_DISPATCH = Method(
    _ACTION + "WithdrawDispatch", actions.WithdrawDispatchRequest, actions.WithdrawDispatchResponse
)
RECONCILE_ACTION = Method(
    _ACTION + "ReconcileAction", actions.ReconcileActionRequest, actions.ReconcileActionResponse
)
LIST_ACTIONS = Method(_ACTION + "ListActions", actions.ListActionsRequest, actions.ListActionsResponse)

LIST_PENDING_APPROVALS = Method(
    _APPROVAL + "ListPendingApprovals",
    approvals.ListPendingApprovalsRequest,
    approvals.ListPendingApprovalsResponse,
)
GET_APPROVAL = Method(_APPROVAL + "GetApproval", approvals.GetApprovalRequest, approvals.GetApprovalResponse)
DECIDE_APPROVAL = Method(
    _APPROVAL + "DecideApproval", approvals.DecideApprovalRequest, approvals.DecideApprovalResponse
)
WATCH_APPROVALS = Method(
    _APPROVAL + "WatchApprovals", approvals.WatchApprovalsRequest, approvals.WatchApprovalsResponse
)

APPEND_EVENT = Method(_RECORD + "AppendEvent", records.AppendEventRequest, records.AppendEventResponse)
LIST_EVENTS = Method(_RECORD + "ListEvents", records.ListEventsRequest, records.ListEventsResponse)
WATCH_EVENTS = Method(_RECORD + "WatchEvents", records.WatchEventsRequest, records.WatchEventsResponse)
PUT_ARTIFACT = Method(_RECORD + "PutArtifact", records.PutArtifactRequest, records.PutArtifactResponse)
GET_ARTIFACT = Method(_RECORD + "GetArtifact", records.GetArtifactRequest, records.GetArtifactResponse)
PUT_CHECKPOINT = Method(
    _RECORD + "PutCheckpoint", records.PutCheckpointRequest, records.PutCheckpointResponse
)
GET_SNAPSHOT = Method(_RECORD + "GetSnapshot", records.GetSnapshotRequest, records.GetSnapshotResponse)

LIST_UNKNOWN_ACTIONS = Method(
    _ADMIN + "ListUnknownActions", admin.ListUnknownActionsRequest, admin.ListUnknownActionsResponse
)
GET_STATS = Method(_ADMIN + "GetStats", admin.GetStatsRequest, admin.GetStatsResponse)
WATCH_STATS = Method(
    _ADMIN + "Watch", admin.DurableAdminServiceWatchRequest, admin.DurableAdminServiceWatchResponse
)
UPDATE_EXTENSION = Method(
    _ADMIN + "UpdateExtension", admin.UpdateExtensionRequest, admin.UpdateExtensionResponse
)
PURGE_TASKS = Method(_ADMIN + "PurgeTasks", admin.PurgeTasksRequest, admin.PurgeTasksResponse)
