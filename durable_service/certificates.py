"""Client certificates in place of signatures: a SPIFFE id names the principal."""

from collections.abc import Callable
from typing import Any, Final

import grpc.aio

from durable_service.principals import Principals
from service_common.request_headers import SIGNATURE_KEY, require_protocol
from service_common.request_verifier import RequestVerifier

Context = grpc.aio.ServicerContext[Any, Any]

_ALTERNATIVE_NAMES: Final = "x509_subject_alternative_name"
_SCHEME: Final = b"spiffe://"


class Certificates:
    """Who a connection belongs to, by the certificate that the peer has shown and TLS has checked."""

    def __init__(self, principals: Callable[[], Principals]) -> None:
        self._principals = principals

    def caller(self, context: Context) -> str | None:
        """The principal that the certificate names; None when there is none, or several names are in it."""
        names = [
            name for name in context.auth_context().get(_ALTERNATIVE_NAMES, ()) if name.startswith(_SCHEME)
        ]
        if len(names) != 1:
            return None
        principal = self._principals().of_certificate(names[0].decode("ascii", "replace"))
        return None if principal is None else principal.id


class PrincipalAuthenticator:
    """Takes a certificate that names a principal, and a signature otherwise."""

    def __init__(self, certificates: Certificates, verifier: RequestVerifier) -> None:
        self._certificates = certificates
        self._verifier = verifier

    async def authenticate(self, method: str, context: Context, request: bytes) -> str:
        """Who sent a unary request.

        Raises:
            ServiceError: as `RequestVerifier.verify`.
        """
        metadata = context.invocation_metadata() or ()
        if all(key != SIGNATURE_KEY for key, _ in metadata):
            caller = self._certificates.caller(context)
            if caller is not None:
                require_protocol(metadata)
                return caller
        return await self._verifier.authenticate(method, context, request)
