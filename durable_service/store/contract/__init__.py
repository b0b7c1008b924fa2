"""The suite that every task store passes; it needs pytest with asyncio tests.

An implementation makes a class of `TaskStoreContract` and brings a fixture of the name `store_harness` (see
`StoreHarness`). The suite cannot show that an answer survives the loss of a process, nor that an update is
atomic between processes: a store that promises either adds tests of its own.
"""

from durable_service.store.contract.queues import QueueCases
from durable_service.store.contract.reading import (
    ApprovalCases,
    JournalCases,
    ListCases,
    NonceCases,
    OverviewCases,
    RestartCases,
    RetentionCases,
)
from durable_service.store.contract.retention import EndedTaskCases, JournalBoundCases
from durable_service.store.contract.scene import CONTRACT_LIMITS, StoreHarness
from durable_service.store.contract.updating import UpdatingCases

__all__ = ["CONTRACT_LIMITS", "StoreHarness", "TaskStoreContract"]


class TaskStoreContract(
    UpdatingCases,
    QueueCases,
    ListCases,
    JournalCases,
    JournalBoundCases,
    ApprovalCases,
    RetentionCases,
    EndedTaskCases,
    OverviewCases,
    NonceCases,
    RestartCases,
):
    """All cases of the contract."""
