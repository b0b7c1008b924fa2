"""The suite that every routing store passes; it needs pytest with asyncio tests.

An implementation makes a class of `RoutingStoreContract` and brings a fixture of the name
`store_harness` (see `StoreHarness`). The suite cannot show that a claim is atomic between
processes: a store with a network adds a race of its own.
"""

from relay_service.store.contract.abandoning import ChurnCases, JunkPayloadCases, StickinessCases
from relay_service.store.contract.authorising import AuthorisingCases, DecliningCases
from relay_service.store.contract.changes import LeaseWordCases, NoticeWordCases, OpeningCases
from relay_service.store.contract.claiming import ClaimingCases
from relay_service.store.contract.holding import HoldingCases
from relay_service.store.contract.inbox import NoticeCases, SettlingCases
from relay_service.store.contract.lapsing import LapsingCases
from relay_service.store.contract.ordering import BoundCases, FairnessCases, OrderCases
from relay_service.store.contract.overview import ChurnReportCases, OldestQueuedCases
from relay_service.store.contract.pairing import PairingCases
from relay_service.store.contract.presence import PresenceCases
from relay_service.store.contract.relays import RelayCases
from relay_service.store.contract.scene import CONTRACT_QUOTAS, StoreHarness
from relay_service.store.contract.state_table import StateTableCases
from relay_service.store.contract.withdrawing import CancellingCases, SealingCases, VerdictCases

__all__ = ["CONTRACT_QUOTAS", "RoutingStoreContract", "StoreHarness"]


class RoutingStoreContract(
    ClaimingCases,
    HoldingCases,
    PresenceCases,
    LapsingCases,
    StickinessCases,
    JunkPayloadCases,
    ChurnCases,
    OrderCases,
    FairnessCases,
    BoundCases,
    SealingCases,
    CancellingCases,
    VerdictCases,
    NoticeCases,
    SettlingCases,
    OpeningCases,
    LeaseWordCases,
    NoticeWordCases,
    StateTableCases,
    RelayCases,
    OldestQueuedCases,
    ChurnReportCases,
    AuthorisingCases,
    DecliningCases,
    PairingCases,
):
    """All cases of the contract."""
