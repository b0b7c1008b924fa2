"""Principals: who may call the service, as whom, and what for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from durable_service.core.definition import Driver

# Stands for every driver, and for tasks without one.
EVERY_DRIVER: Final = "*"


class Role(StrEnum):
    """What a principal may do within its tenant."""

    SUBMITTER = "submitter"
    WORKER = "worker"
    APPROVER = "approver"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """One credential and what it stands for.

    Attributes:
        id: what the caller signs as; printable ASCII without "/".
        tenant_id, actor_id: whose tasks it creates and sees. No request can name others.
        key: Ed25519 public key, 32 bytes; None when a client certificate is the credential.
        spiffe_id: of the client certificate; None when a key is the credential.
        drivers: what a worker may execute: `ID` for every version, `ID@VERSION` for one, `*` for everything.
        disabled: cut off; it is told so once it has proved who it is.
    """

    id: str
    tenant_id: str
    actor_id: str
    roles: frozenset[Role]
    key: bytes | None = None
    spiffe_id: str | None = None
    drivers: frozenset[str] = frozenset()
    disabled: bool = False

    def has(self, *roles: Role) -> bool:
        """Whether it has one of these roles."""
        return not self.roles.isdisjoint(roles)

    def executes(self, driver: Driver | None) -> bool:
        """Whether it is a worker for tasks of this driver; None for tasks without one."""
        if Role.WORKER not in self.roles:
            return False
        if EVERY_DRIVER in self.drivers:
            return True
        if driver is None:
            return False
        return driver.id in self.drivers or f"{driver.id}@{driver.version}" in self.drivers


@dataclass(frozen=True, slots=True)
class Principals:
    """All principals in force; replaced as a whole."""

    by_id: Mapping[str, Principal] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, principals: Iterable[Principal]) -> "Principals":
        return cls(MappingProxyType({principal.id: principal for principal in principals}))

    def get(self, principal_id: str) -> Principal | None:
        return self.by_id.get(principal_id)

    def of_certificate(self, spiffe_id: str) -> Principal | None:
        """The principal whose client certificate has this SPIFFE id."""
        return next((each for each in self.by_id.values() if each.spiffe_id == spiffe_id), None)
