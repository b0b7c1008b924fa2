"""Between a verified signature and a call: the principal, its roles, and errors on their way out."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from durable_service.caller import Caller
from durable_service.core.errors import DomainError
from durable_service.planes.refusals import refused, role_not_allowed
from durable_service.principal_keys import principal_revoked
from durable_service.principals import Principals, Role
from service_common.caller_identity import current_caller

Request = TypeVar("Request")
Response = TypeVar("Response")

_READERS: Final = frozenset({Role.SUBMITTER, Role.WORKER, Role.OPERATOR})
_OWNERS: Final = frozenset({Role.SUBMITTER, Role.OPERATOR})
_WORKERS: Final = frozenset({Role.WORKER})
_RECOVERERS: Final = frozenset({Role.WORKER, Role.OPERATOR})
_APPROVERS: Final = frozenset({Role.APPROVER})
_OVERSEERS: Final = frozenset({Role.OPERATOR, Role.ADMIN})

# Every method of every service, or it may not be called. A principal needs one of these roles.
ROLES: Final[dict[str, frozenset[Role]]] = {
    "CreateTask": frozenset({Role.SUBMITTER}),
    "GetTask": _READERS,
    "ListTasks": _READERS,
    "CancelTask": _OWNERS,
    "WaitTask": _READERS,
    "WatchTasks": _READERS,
    "Session": _RECOVERERS,
    "ClaimNext": _WORKERS,
    "ClaimTask": _WORKERS,
    "ClaimForRecovery": _RECOVERERS,
    "RenewLeases": _RECOVERERS,
    "ReleaseTask": _RECOVERERS,
    "YieldTask": _WORKERS,
    "ReserveBudget": _WORKERS,
    "CompleteTask": _WORKERS,
    "FailTask": _WORKERS,
    "AcknowledgeCancellation": _RECOVERERS,
    "PrepareAction": _WORKERS,
    "BeginDispatch": _WORKERS,
    "ConfirmAction": _WORKERS,
    "MarkActionUnknown": _WORKERS,
    "WithdrawDispatch": _WORKERS,
    "ReconcileAction": _RECOVERERS,
    "ListActions": _READERS,
    "ListPendingApprovals": _APPROVERS,
    "GetApproval": _APPROVERS,
    "DecideApproval": _APPROVERS,
    "WatchApprovals": _APPROVERS,
    "AppendEvent": _WORKERS,
    "ListEvents": _READERS,
    "WatchEvents": _READERS,
    "PutArtifact": _WORKERS,
    "GetArtifact": _READERS,
    "PutCheckpoint": _WORKERS,
    "GetSnapshot": _READERS,
    "GetStats": _OVERSEERS,
    "ListUnknownActions": _OVERSEERS,
    "PurgeTasks": frozenset({Role.ADMIN}),
    "UpdateExtension": frozenset({Role.ADMIN, Role.WORKER}),
    "Watch": _OVERSEERS,
}


class Gate:
    """Lets calls in by the principals as they stand now."""

    def __init__(self, principals: Callable[[], Principals]) -> None:
        self._principals = principals
        self._known_by: Principals | None = None
        self._known: dict[tuple[str, str], Caller] = {}

    def caller(self, name: str, principal_id: str | None = None) -> Caller:
        """Who calls.

        Args:
            name: the method, such as `GetTask`.
            principal_id: whose call rides a stream; None for the one that signed the request.

        Raises:
            ServiceError: ROLE_NOT_ALLOWED; PRINCIPAL_REVOKED when it was cut off since it signed.
        """
        principals = self._principals()
        if principals is not self._known_by:
            # They are replaced as a whole, so what was found out holds until then and no longer.
            self._known_by, self._known = principals, {}
        asked = name, current_caller() if principal_id is None else principal_id
        known = self._known.get(asked)
        if known is None:
            known = self._known[asked] = self._find(principals, *asked)
        return known

    def _find(self, principals: Principals, name: str, principal_id: str) -> Caller:
        principal = principals.get(principal_id)
        if principal is None or principal.disabled:
            raise principal_revoked()
        roles = principal.roles & ROLES.get(name, frozenset())
        if not roles:
            raise role_not_allowed()
        return Caller(principal, roles)

    async def unary(
        self,
        name: str,
        call: Callable[[Caller, Request], Awaitable[Response]],
        request: Request,
    ) -> Response:
        """Carries a unary call out."""
        with errors_told():
            return await call(self.caller(name), request)


@contextmanager
def errors_told() -> Iterator[None]:
    """Lets a refusal of the core leave as the error that a caller is shown."""
    try:
        yield
    except DomainError as error:
        raise refused(error) from None
