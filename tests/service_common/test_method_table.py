from typing import Any

import pytest

from service_common.method_table import Admission, MethodTable, ServicePolicy


class Nobody:
    async def authenticate(self, method: str, context: Any, request: bytes) -> str:
        raise AssertionError("not asked here")


SIGNER = Nobody()
TABLE = MethodTable(
    services={
        "a.v1.Plane": ServicePolicy("relay.sealwork.dev", SIGNER),
        "a.v1.Open": ServicePolicy("relay.sealwork.dev", None),
    },
    unauthenticated=frozenset(
        ("/a.v1.Plane/StartPairing", "/grpc.health.v1.Health/Check", "/grpc.reflection.v1alpha.R/Info")
    ),
    challenged=frozenset(("/a.v1.Plane/Session", "/b.v1.Unknown/Session")),
    default_domain="sealwork.dev",
)


@pytest.mark.parametrize(
    ("method", "streaming", "admission", "domain", "versioned"),
    [
        ("/a.v1.Plane/Claim", False, Admission.SIGNED, "relay.sealwork.dev", True),
        ("/a.v1.Plane/StartPairing", False, Admission.OPEN, "relay.sealwork.dev", True),
        ("/a.v1.Plane/Session", True, Admission.BY_CHALLENGE, "relay.sealwork.dev", False),
        ("/a.v1.Plane/OtherStream", True, Admission.DENIED, "relay.sealwork.dev", False),
        # A listing as challenged opens a stream alone, and never a method with one request.
        ("/a.v1.Plane/Session", False, Admission.SIGNED, "relay.sealwork.dev", True),
        ("/a.v1.Open/Anything", False, Admission.DENIED, "relay.sealwork.dev", True),
        ("/b.v1.Unknown/Claim", False, Admission.DENIED, "sealwork.dev", False),
        ("/b.v1.Unknown/Session", True, Admission.DENIED, "sealwork.dev", False),
        ("/grpc.health.v1.Health/Check", False, Admission.OPEN, "sealwork.dev", False),
        ("/grpc.health.v1.Health/Watch", False, Admission.DENIED, "sealwork.dev", False),
        ("/grpc.reflection.v1alpha.R/Info", True, Admission.OPEN, "sealwork.dev", False),
    ],
)
def test_what_is_not_listed_is_denied(
    method: str, streaming: bool, admission: Admission, domain: str, versioned: bool
) -> None:
    rule = TABLE.rule_for(method, request_streaming=streaming)
    assert rule.admission is admission
    assert rule.domain == domain
    assert rule.versioned is versioned
    assert (rule.authenticator is SIGNER) is (admission is Admission.SIGNED)
