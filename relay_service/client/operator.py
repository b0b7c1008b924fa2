"""An operator of a relay: decides who takes part, and looks on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from google.protobuf.message import Message

from relay_service.client.calls import Calls, Method, RequestSigner
from relay_service.client.connection import Connection
from relay_service.client.keys import Keys
from relay_service.client.operator_messages import projection_of
from relay_service.client.wire import identity_to_proto, milliseconds_of, timestamp_of
from relay_service.core.identity import PublicIdentity
from relay_service.core.projection import Projection
from sealwork.relay.v1 import admin_pb2 as admin
from sealwork.relay.v1 import control_plane_pb2 as control
from sealwork.relay.v1 import pairing_pb2
from service_common.clocks import Clock, SystemClock

DEFAULT_NAME: Final = "operator"

_CONTROL: Final = "/sealwork.relay.v1.ControlPlaneService/"
_ADMIN: Final = "/sealwork.relay.v1.RelayAdminService/"
_PAGE: Final = 500
# A change is noted, shared and written to a disk before it is answered.
_CHANGE_SECONDS: Final = 30.0

_PLATFORMS: Final = {
    pairing_pb2.PLATFORM_DARWIN: "macOS",
    pairing_pb2.PLATFORM_LINUX: "Linux",
    pairing_pb2.PLATFORM_WIN32: "Windows",
}

_GET_PROJECTION = Method(
    _CONTROL + "GetProjection", control.GetProjectionRequest, control.GetProjectionResponse
)
_CHANGE_PROJECTION = Method(
    _CONTROL + "ChangeProjection", control.ChangeProjectionRequest, control.ChangeProjectionResponse
)
_LIST_PAIRINGS = Method(_CONTROL + "ListPairings", control.ListPairingsRequest, control.ListPairingsResponse)
_APPROVE = Method(_CONTROL + "ApprovePairing", control.ApprovePairingRequest, control.ApprovePairingResponse)
_DENY = Method(_CONTROL + "DenyPairing", control.DenyPairingRequest, control.DenyPairingResponse)
_LIST_DAEMONS = Method(_ADMIN + "ListDaemons", admin.ListDaemonsRequest, admin.ListDaemonsResponse)
_LIST_SITES = Method(_ADMIN + "ListSites", admin.ListSitesRequest, admin.ListSitesResponse)


@dataclass(frozen=True, slots=True)
class Changed:
    """What came of a change.

    Attributes:
        revision: Of the projection that is in force now.
        summary: What was changed, or how it is already.
        changed: False when everything was as wanted.
    """

    revision: int
    summary: str
    changed: bool


@dataclass(frozen=True, slots=True)
class WaitingDevice:
    """A device that waits to be paired; compare its key id with what it shows."""

    user_code: str
    key_id: str
    label: str
    platform: str
    client_version: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """A device of the projection, and what the relay that was asked knows of it.

    Attributes:
        connected: It has a stream at that relay.
        last_seen_at_ms: Epoch ms; None when it was not seen for an hour.
        leases: Jobs that it holds.
    """

    runner_id: str
    owner: str
    key_id: str
    revoked: bool
    connected: bool
    client_version: str
    last_seen_at_ms: int | None
    leases: int


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """A site of the projection, and what the relay that was asked knows of it."""

    site_id: str
    key_id: str
    sessions: int
    unfinished_jobs: int


class Operator:
    """Calls a relay as one of its operators. Use it as an async context manager.

    Every method raises `RelayError` when the relay refuses or does not answer.
    """

    def __init__(
        self,
        address: str | Connection,
        *,
        keys: Keys,
        name: str = DEFAULT_NAME,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Prepare; nothing is connected before the first call.

        Args:
            address: The relay, `host:port` or `unix:PATH`; a `Connection` for TLS.
            keys: Those whose public half the relay was started with.
            name: Under which the relay knows them.
            clock: Stamps requests.
            random: Jitter of repeats.

        Raises:
            ValueError: The name or the address has another form.
        """
        connection = address if isinstance(address, Connection) else Connection(address)
        given = clock or SystemClock()
        signer = RequestSigner(name, keys.signer, given)
        # Spreads repeats, keeps no secret.
        jitter = random or Random()  # noqa: S311
        self._calls = Calls(connection.calls_channel, signer, clock=given, random=jitter)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._calls.close()

    async def projection(self) -> Projection:
        """Return every decision in force, as the relay tells it; nothing about it is verified."""
        answer = await self._calls.call(_GET_PROJECTION, control.GetProjectionRequest())
        return projection_of(answer.projection)

    async def add_site(self, site_id: str, identity: PublicIdentity) -> Changed:
        """Register a site."""
        return await self._change(
            add_site=control.AddSite(site_id=site_id, identity=identity_to_proto(identity))
        )

    async def remove_site(self, site_id: str) -> Changed:
        """Take a site out, and every consent to it."""
        return await self._change(remove_site=control.RemoveSite(site_id=site_id))

    async def rotate_site(
        self, site_id: str, identity: PublicIdentity, signature: bytes, retiring_until_ms: int | None
    ) -> Changed:
        """Move a site to a new key, for which the signature of its present key vouches.

        Args:
            site_id: The site.
            identity: Its new public identity.
            signature: Of a `SuccessionLink`.
            retiring_until_ms: Until then, in epoch ms, earlier keys still count; None means no longer.
        """
        change = control.RotateSite(
            site_id=site_id, identity=identity_to_proto(identity), signature=signature
        )
        if retiring_until_ms is not None:
            change.retiring_until_time.CopyFrom(timestamp_of(retiring_until_ms))
        return await self._change(rotate_site=change)

    async def add_device(self, runner_id: str, owner: str, identity: PublicIdentity) -> Changed:
        """Approve a device without pairing."""
        change = control.AddDevice(runner_id=runner_id, owner=owner, identity=identity_to_proto(identity))
        return await self._change(add_device=change)

    async def revoke_device(self, runner_id: str) -> Changed:
        """Cut a device off for good."""
        return await self._change(revoke_device=control.RevokeDevice(runner_id=runner_id))

    async def grant_consent(self, owner: str, site_id: str) -> Changed:
        """Let a site send work in a person's name."""
        return await self._change(grant_consent=control.GrantConsent(owner=owner, site_id=site_id))

    async def pause_consent(self, owner: str, site_id: str) -> Changed:
        """Stop routing for a while."""
        return await self._change(pause_consent=control.PauseConsent(owner=owner, site_id=site_id))

    async def resume_consent(self, owner: str, site_id: str) -> Changed:
        """Route again."""
        return await self._change(resume_consent=control.ResumeConsent(owner=owner, site_id=site_id))

    async def revoke_consent(self, owner: str, site_id: str) -> Changed:
        """End a consent."""
        return await self._change(revoke_consent=control.RevokeConsent(owner=owner, site_id=site_id))

    async def add_roster_members(self, roster_id: str, owner: str, members: Sequence[str]) -> Changed:
        """Let an owner's devices run the team work of more people."""
        change = control.AddRosterMembers(roster_id=roster_id, owner=owner, members=members)
        return await self._change(add_roster_members=change)

    async def remove_roster_members(self, roster_id: str, owner: str, members: Sequence[str] = ()) -> Changed:
        """Take people out of a roster; without a name it is deleted."""
        change = control.RemoveRosterMembers(roster_id=roster_id, owner=owner, members=members)
        return await self._change(remove_roster_members=change)

    async def pairings(self) -> list[WaitingDevice]:
        """Return the devices that wait for a decision, oldest first."""
        answer = await self._calls.call(_LIST_PAIRINGS, control.ListPairingsRequest())
        return [_waiting(pairing) for pairing in answer.pairings]

    async def approve(self, user_code: str, owner: str) -> str:
        """Make the device that shows this code a device of `owner`, and return its runner id."""
        request = control.ApprovePairingRequest(user_code=user_code, owner=owner)
        return (await self._calls.call(_APPROVE, request, timeout=_CHANGE_SECONDS)).runner_id

    async def deny(self, user_code: str) -> None:
        """Turn the device away that shows this code."""
        await self._calls.call(_DENY, control.DenyPairingRequest(user_code=user_code))

    async def devices(self) -> list[DeviceStatus]:
        """Return all devices of the projection, with what the relay knows of each."""
        pages = await self._pages(
            _LIST_DAEMONS,
            lambda token: admin.ListDaemonsRequest(page_size=_PAGE, page_token=token),
        )
        return [_device(device) for page in pages for device in page.daemons]

    async def sites(self) -> list[SiteStatus]:
        """Return all sites of the projection, with what the relay knows of each."""
        pages = await self._pages(
            _LIST_SITES, lambda token: admin.ListSitesRequest(page_size=_PAGE, page_token=token)
        )
        return [
            SiteStatus(site.site_id, site.key_id, site.sessions, site.unfinished_jobs)
            for page in pages
            for site in page.sites
        ]

    async def _change(self, **change: Message) -> Changed:
        request = control.ChangeProjectionRequest(**change)  # type: ignore[arg-type]
        answer = await self._calls.call(_CHANGE_PROJECTION, request, timeout=_CHANGE_SECONDS)
        return Changed(answer.revision, answer.summary, answer.changed)

    async def _pages(self, method: Method[Any, Any], request: Callable[[str], Message]) -> list[Any]:
        pages: list[Any] = []
        token = ""
        while not pages or token:
            pages.append(await self._calls.call(method, request(token)))
            token = pages[-1].next_page_token
        return pages


def _waiting(pairing: control.PendingPairing) -> WaitingDevice:
    return WaitingDevice(
        user_code=pairing.user_code,
        key_id=pairing.key_id,
        label=pairing.label,
        platform=_PLATFORMS.get(pairing.platform, "unknown"),
        client_version=pairing.client_version,
        expires_at_ms=milliseconds_of(pairing.expire_time),
    )


def _device(device: admin.DaemonSummary) -> DeviceStatus:
    seen = device.HasField("last_seen_time")
    return DeviceStatus(
        runner_id=device.runner_id,
        owner=device.owner,
        key_id=device.key_id,
        revoked=device.revoked,
        connected=device.connected,
        client_version=device.client_version,
        last_seen_at_ms=milliseconds_of(device.last_seen_time) if seen else None,
        leases=device.leases,
    )
