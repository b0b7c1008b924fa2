"""The default-deny table: which methods may be called, and how their callers are known."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import grpc

HEALTH_METHODS: Final = frozenset(("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"))
REFLECTION_METHODS: Final = frozenset(
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",),
)
CHANNELZ_METHODS: Final = frozenset(
    f"/grpc.channelz.v1.Channelz/{name}"
    for name in (
        "GetTopChannels",
        "GetServers",
        "GetServer",
        "GetServerSockets",
        "GetChannel",
        "GetSubchannel",
        "GetSocket",
    )
)


class CallAuthenticator(Protocol):
    """Tells who sent a unary request."""

    async def authenticate(
        self, method: str, context: "grpc.aio.ServicerContext[Any, Any]", request: bytes
    ) -> str:
        """Return the caller's id.

        Raises:
            ServiceError: The request is not let in.
        """


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """How one of our services knows its callers.

    Attributes:
        domain: Error domain of its statuses, such as `relay.sealwork.dev`.
        authenticator: Who judges its unary requests; None when every method of it is listed as open.
    """

    domain: str
    authenticator: CallAuthenticator | None


class Admission(enum.Enum):
    """How a caller gets in."""

    SIGNED = "signed"
    OPEN = "open"
    BY_CHALLENGE = "by-challenge"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class MethodRule:
    """The table's answer for one method.

    Attributes:
        admission: How a caller gets in.
        domain: Error domain of its statuses.
        authenticator: Set if and only if requests are signed.
        versioned: Whether a unary request has to name the protocol version.
    """

    admission: Admission
    domain: str
    authenticator: CallAuthenticator | None
    versioned: bool


@dataclass(frozen=True, slots=True)
class MethodTable:
    """What is listed may be called; everything else is refused.

    Attributes:
        services: Policies by full service name, `sealwork.relay.v1.DaemonPlaneService`. Unary requests to
            these are signed unless listed below.
        unauthenticated: Full method names, leading slash included, that anyone may call.
        challenged: Full names of methods with a stream of requests that authenticate their caller on the
            stream, by challenge.
        uploads: Full names of methods with a stream of requests and one answer, whose caller signs the first
            message of the stream.
        default_domain: Error domain of services without a policy, such as health.
    """

    services: Mapping[str, ServicePolicy]
    unauthenticated: frozenset[str]
    challenged: frozenset[str] = field(default=frozenset())
    uploads: frozenset[str] = field(default=frozenset())
    default_domain: str = "sealwork.dev"

    def rule_for(self, method: str, *, request_streaming: bool) -> MethodRule:
        """Return the rule of a method.

        Args:
            method: Full method name with its leading slash.
            request_streaming: Whether the caller sends a stream, which has no one body to sign. Of an upload
                the first message is signed.
        """
        policy = self.services.get(method[1:].rpartition("/")[0])
        domain = policy.domain if policy else self.default_domain
        versioned = policy is not None and not request_streaming
        if method in self.unauthenticated:
            return MethodRule(Admission.OPEN, domain, None, versioned)
        if request_streaming and method not in self.uploads:
            challenged = policy is not None and method in self.challenged
            admission = Admission.BY_CHALLENGE if challenged else Admission.DENIED
            return MethodRule(admission, domain, None, versioned)
        if policy is None or policy.authenticator is None:
            return MethodRule(Admission.DENIED, domain, None, versioned)
        return MethodRule(Admission.SIGNED, domain, policy.authenticator, versioned)
