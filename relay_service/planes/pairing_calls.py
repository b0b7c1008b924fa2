"""Pairing on the wire: convert, ask the desk, convert. Nobody has proved anything when these are called."""

import ipaddress
import unicodedata
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from urllib.parse import unquote

from relay_service.core.pairing import (
    DEVICE_CODE_CHARACTERS,
    LABEL_CHARACTERS,
    PairingIntroduction,
    PairingState,
    Platform,
)
from relay_service.core.projection import Projection
from relay_service.core.versions import is_below
from relay_service.pairing import PairingDesk
from relay_service.pairing_facts import PairingOutcome, StartProof
from relay_service.planes import convert, refusals
from relay_service.planes.daemon_calls import directory_of
from relay_service.planes.validation import Checks
from sealwork.relay.v1 import pairing_pb2

PLATFORMS = {
    Platform.DARWIN: pairing_pb2.PLATFORM_DARWIN,
    Platform.LINUX: pairing_pb2.PLATFORM_LINUX,
    Platform.WIN32: pairing_pb2.PLATFORM_WIN32,
}
_PLATFORM_OF = {number: platform for platform, number in PLATFORMS.items()}
_STATES = {
    PairingState.PENDING: pairing_pb2.PAIRING_STATE_PENDING,
    PairingState.APPROVED: pairing_pb2.PAIRING_STATE_APPROVED,
    PairingState.DENIED: pairing_pb2.PAIRING_STATE_DENIED,
    PairingState.EXPIRED: pairing_pb2.PAIRING_STATE_EXPIRED,
}
_SIGNATURE_BYTES = 64
_NONCE_BYTES = 16
# One household or one server has this much of the newer address space, so it is one peer.
_PEER_PREFIX_BITS = 64
# Characters that turn the direction of text: a label is shown to the person who decides.
_DIRECTION_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class PairingCalls:
    """The three pairing methods.

    Args:
        projection: the operator's decisions as they stand at this instant.
        daemon_floor: least version of a daemon, empty for none. One that is older is told when it begins,
            before a person approves what could not run.
    """

    def __init__(
        self, desk: PairingDesk, projection: Callable[[], Projection], daemon_floor: str = ""
    ) -> None:
        self._desk = desk
        self._projection = projection
        self._daemon_floor = daemon_floor

    async def start(
        self, request: pairing_pb2.StartPairingRequest, peer: str
    ) -> pairing_pb2.StartPairingResponse:
        """Begins a pairing; `peer` is as gRPC names it."""
        _check_start(request)
        if self._daemon_floor and is_below(request.client_version, self._daemon_floor):
            raise refusals.daemon_below_floor(self._daemon_floor)
        introduction = PairingIntroduction(
            convert.identity_from_proto(request.device),
            request.label,
            _PLATFORM_OF[request.platform],
            request.client_version,
        )
        proof = StartProof(
            convert.milliseconds_of(request.proof.issue_time), request.proof.nonce, request.proof.signature
        )
        started = await self._desk.start(introduction, proof, peer_address(peer))
        return pairing_pb2.StartPairingResponse(
            device_code=started.device_code,
            user_code=started.user_code,
            verification_url=started.verification_url,
            expire_time=convert.timestamp_of(started.expires_at_ms),
            expires_in=convert.duration_of(started.life_ms),
            poll_interval=convert.duration_of(started.poll_interval_ms),
        )

    async def poll(self, request: pairing_pb2.PollPairingRequest) -> pairing_pb2.PollPairingResponse:
        """How a pairing stands."""
        _check_code(request)
        outcome = await self._desk.poll(request.device_code, request.signature)
        return pairing_pb2.PollPairingResponse(state=_STATES[outcome.state], approval=self._approval(outcome))

    async def watch(
        self, request: pairing_pb2.WatchPairingRequest
    ) -> AsyncGenerator[pairing_pb2.WatchPairingResponse, None]:
        """How a pairing stands, until it is over."""
        _check_code(request)
        async with aclosing(self._desk.watch(request.device_code, request.signature)) as outcomes:
            async for outcome in outcomes:
                yield pairing_pb2.WatchPairingResponse(
                    state=_STATES[outcome.state], approval=self._approval(outcome)
                )

    def _approval(self, outcome: PairingOutcome) -> pairing_pb2.PairingApproval | None:
        approval = outcome.approval
        if approval is None:
            return None
        return pairing_pb2.PairingApproval(
            runner_id=approval.runner_id,
            owner=approval.owner,
            directory=directory_of(self._projection(), approval.owner),
            control_plane_key=approval.control_plane_key,
        )


def peer_address(peer: str) -> str:
    """The address that counts as one peer, of what gRPC says: no port, and the network of IPv6."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    host = unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _PEER_PREFIX_BITS), strict=False))
    return str(address)


def _check_start(request: pairing_pb2.StartPairingRequest) -> None:
    checks = Checks()
    checks.identifier("client_version", request.client_version)
    _check_label(checks, request.label)
    if request.platform not in _PLATFORM_OF:
        checks.fault("platform", "must be one of the named platforms")
    if not request.HasField("device"):
        checks.fault("device", "is missing")
    checks.matrix("matrix", request.matrix)
    checks.instant("proof.issue_time", request.proof.issue_time, whole_ms=True)
    checks.count("proof.nonce", len(request.proof.nonce), _NONCE_BYTES, _NONCE_BYTES)
    checks.count("proof.signature", len(request.proof.signature), _SIGNATURE_BYTES, _SIGNATURE_BYTES)
    checks.raise_faults()


def _check_label(checks: Checks, label: str) -> None:
    if not 0 < len(label) <= LABEL_CHARACTERS or not label.strip():
        checks.fault("label", f"must have 1 to {LABEL_CHARACTERS} characters, not all of them blank")
    elif any(unicodedata.category(char) in ("Cc", "Zl", "Zp") or char in _DIRECTION_MARKS for char in label):
        checks.fault("label", "must be one line without control characters")


def _check_code(request: pairing_pb2.PollPairingRequest | pairing_pb2.WatchPairingRequest) -> None:
    checks = Checks()
    if len(request.device_code) != DEVICE_CODE_CHARACTERS:
        checks.fault("device_code", f"must have {DEVICE_CODE_CHARACTERS} characters")
    checks.count("signature", len(request.signature), _SIGNATURE_BYTES, _SIGNATURE_BYTES)
    checks.raise_faults()
