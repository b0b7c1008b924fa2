"""Whose signature counts, by the principals as they stand at this instant."""

from collections.abc import Callable

import grpc

from durable_service.principals import Principals
from service_common.errors import ServiceError


class PrincipalKeys:
    """One directory for all services: what a principal may call is a question of its roles."""

    def __init__(self, principals: Callable[[], Principals]) -> None:
        self._principals = principals

    def keys_for(self, _method: str, caller: str) -> tuple[bytes, ...] | None:
        """The Ed25519 public key of this principal."""
        principal = self._principals().get(caller)
        return None if principal is None or principal.key is None else (principal.key,)

    def refusal_for(self, _method: str, caller: str) -> ServiceError | None:
        """PRINCIPAL_REVOKED, told only to one who has proved to be that principal."""
        principal = self._principals().get(caller)
        return principal_revoked() if principal is None or principal.disabled else None


def principal_revoked() -> ServiceError:
    """This principal is cut off."""
    return ServiceError(
        grpc.StatusCode.PERMISSION_DENIED,
        "PRINCIPAL_REVOKED",
        "this principal is cut off; stop for good, and ask the operator for another credential",
    )
