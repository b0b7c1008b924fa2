"""A relay among people, sites and devices whose names stand out, and what each party hears of it."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from relay_service.core.projection import (
    Consent,
    ProjectedDevice,
    ProjectedSite,
    Projection,
    Roster,
)
from relay_service.pairing import PairingSettings
from relay_service.policy import Decision, Declined, Granted, Slot, SlotVerdict, WonJob
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from service_common.sessions.limits import SessionTimes
from tests.relay_service.planes.scene import claim
from tests.relay_service.raw_client import RawDaemon, RawSite
from tests.relay_service.raw_pairing import NewDevice
from tests.relay_service.relay_fixture import (
    START_MS,
    RelayUnderTest,
    keys_of,
    ref,
    serving,
    timestamp,
)
from tests.relay_service.routes.recording import Record, RecordingChannel

# Olga publishes at amber, quentin at birch; pavel's device takes the work of both. Ruth is admitted as
# well and never has a job. Sven serves birch alone and gets nothing; nobody does anything at cedar.
PROJECTION = Projection(
    sites=tuple(
        ProjectedSite(name, keys_of(name).public) for name in ("site-amber", "site-birch", "site-cedar")
    ),
    consents=(
        *(Consent(owner, "site-amber") for owner in ("owner-olga", "owner-pavel", "member-ruth")),
        *(
            Consent(owner, "site-birch")
            for owner in ("owner-pavel", "owner-sven", "member-quentin", "member-ruth")
        ),
        Consent("owner-olga", "site-cedar"),
        Consent("member-tove", "site-cedar", paused=True),
    ),
    devices=tuple(
        ProjectedDevice(owner, runner_id, keys_of(runner_id).public)
        for owner, runner_id in (
            ("owner-olga", "runner-olga"),
            ("owner-olga", "runner-idle"),
            ("owner-pavel", "runner-pavel"),
            ("owner-sven", "runner-sven"),
        )
    ),
    rosters=(
        Roster("roster-harbour", "owner-pavel", ("owner-olga", "member-quentin", "member-ruth")),
        Roster("roster-meadow", "owner-sven", ("member-ruth", "member-tove")),
    ),
)
OWNER_OF = {device.runner_id: device.owner for device in PROJECTION.devices}


class EverythingPolicy:
    """Grants every job, except to a device that cannot have any now; needs are met by their purpose."""

    async def check_slot(self, slot: Slot, seconds: float) -> SlotVerdict:
        return SlotVerdict(slot.purpose) if slot.purpose in set(SlotVerdict) else SlotVerdict.OK

    async def author_grant(self, won: WonJob, seconds: float) -> Decision:
        if won.stub.id.startswith("declined"):
            return Declined(permanent=True)
        grant = job_pb2.SignedGrant(
            grant_id=f"grant of {won.lease_id}",
            job_id=won.stub.id,
            site=won.stub.site,
            user=won.stub.owner,
            owner=won.device_owner,
            purpose="default",
            kind=won.stub.kind,
            service="desk",
            issue_time=timestamp(START_MS),
            signature=bytes(64),
        )
        return Granted(grant.SerializeToString())


@dataclass
class Everything:
    """The relay and what each party has heard of it, by the party's name."""

    relay: RelayUnderTest
    records: defaultdict[str, Record] = field(default_factory=lambda: defaultdict(Record))

    @property
    def has_two_relays(self) -> bool:
        return hasattr(self.relay, "device_server")

    def channel(self, name: str) -> Any:
        """Where sites connect, and where everybody else does: two relays when there are two."""
        elsewhere = getattr(self.relay, "device_channel", self.relay.channel)
        channel = self.relay.channel if name.startswith("site-") else elsewhere
        return RecordingChannel(channel, self.records[name])

    def site(self, name: str) -> RawSite:
        return self.relay.site(f"site-{name}", channel=self.channel(f"site-{name}"))

    def device(self, name: str) -> RawDaemon:
        return self.relay.daemon(f"runner-{name}", channel=self.channel(f"runner-{name}"))

    def new_device(self, name: str) -> NewDevice:
        return NewDevice(self.channel(name), self.relay.clock.now_ms, keys_of(name))

    # -- what parties ask ---------------------------------------------------------------

    def stub(self, site: str, owner: str, job_id: str, **fields: Any) -> job_pb2.JobStub:
        return self.relay.stub(job_id, owner=owner, site=keys_of(f"site-{site}").key_id, **fields)

    async def publish(self, site: str, owner: str, job_id: str, **fields: Any) -> None:
        request = site_plane_pb2.EnqueueJobRequest(stub=self.stub(site, owner, job_id, **fields))
        await self.site(site).call("EnqueueJob", request)

    async def claim(self, device: str, name: str = "") -> Any:
        """The lease of the one job that a device gets by a unary call."""
        (granted,) = (await self.device(device).call("ClaimJobs", claim(name or "claim"))).granted
        return ref(granted)

    def sealing(self, site: str, device: str, lease: Any, body: bytes) -> site_plane_pb2.SealPayloadRequest:
        sealed = self.relay.payload(
            f"runner-{device}", body=body, sender_key_id=keys_of(f"site-{site}").key_id
        )
        return site_plane_pb2.SealPayloadRequest(
            job_id=lease.job_id, lease_id=lease.lease_id, envelope=sealed
        )

    def completing(
        self, site: str, device: str, lease: Any, body: bytes
    ) -> daemon_plane_pb2.CompleteJobRequest:
        sealed = self.relay.result(
            f"runner-{device}", body=body, recipient_key_id=keys_of(f"site-{site}").key_id
        )
        return daemon_plane_pb2.CompleteJobRequest(
            lease=lease, envelope=sealed, disposition=job_pb2.DISPOSITION_OK
        )

    def change(self, **parts: Any) -> None:
        self.relay.source.replace(replace(self.relay.source.current, **parts))


OPTIONS: dict[str, Any] = {
    "policy": EverythingPolicy(),
    "pairing": PairingSettings(
        control_plane_key=bytes(range(32)),
        starts_per_minute=1_000,
        verification_url="https://example.org/pair",
    ),
    "offered_version": "9.8.7",
}
TIMES = SessionTimes(queued_notices=4, drain_ms=1_000)


@asynccontextmanager
async def at_one_relay() -> AsyncIterator[Everything]:
    async with serving(TIMES, projection=PROJECTION, **OPTIONS) as relay:
        yield Everything(relay)


@asynccontextmanager
async def at_two_relays(url: str) -> AsyncIterator[Everything]:
    """Sites are at one and all others at the other, with the Valkey server at `url` between them."""
    from tests.relay_service.replicas.two_relays import two_relays

    async with two_relays(url, TIMES, **OPTIONS) as relay:
        relay.source.replace(PROJECTION)
        yield Everything(relay)
