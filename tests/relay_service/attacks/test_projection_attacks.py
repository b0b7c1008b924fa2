"""A projection that gives the key of one person's device to another, whichever way it comes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from relay_service.core.projection import ProjectedDevice
from relay_service.planes.convert import identity_to_proto
from relay_service.projection_file import ProjectionError, format_projection, parse_projection
from sealwork.relay.v1 import control_plane_pb2 as wire
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from tests.relay_service.attacks.test_site_attacks import REQUESTS, of_site
from tests.relay_service.planes.scene import claim, scene
from tests.relay_service.raw_client import RawDaemon, RawOperator
from tests.relay_service.relay_fixture import (
    PROJECTION,
    RelayUnderTest,
    keys_of,
    ref,
    relay_process,
    serving,
    with_device,
)

STOLEN = ProjectedDevice("mallory", "runner-m", keys_of("runner-1").public)
BAD_SIGNATURE = (grpc.StatusCode.UNAUTHENTICATED, "BAD_SIGNATURE")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Controller(RawOperator):
    service = "ControlPlaneService"


def controller(relay: RelayUnderTest) -> Controller:
    return Controller(relay.channel, "operator", keys_of("operator"), relay.clock.now_ms)


async def current(operator: Controller) -> wire.Projection:
    answer = await operator.call("GetProjection", wire.GetProjectionRequest())
    projection: wire.Projection = answer.projection
    return projection


def under_another_name(projection: wire.Projection) -> str:
    projection.devices.add(
        owner="mallory", runner_id="runner-m", identity=identity_to_proto(keys_of("runner-1").public)
    )
    return "projection.devices[3].identity.identity"


def under_the_same_name(projection: wire.Projection) -> str:
    projection.devices.add(
        owner="mallory", runner_id="runner-1", identity=identity_to_proto(keys_of("mallory").public)
    )
    return "projection.devices[3].runner_id"


def under_a_revoked_name(projection: wire.Projection) -> str:
    projection.devices[0].revoked = True
    return under_another_name(projection)


@pytest.mark.parametrize("steal", [under_another_name, under_the_same_name, under_a_revoked_name])
async def test_a_key_stays_with_one_device_of_one_owner(steal: Callable[[wire.Projection], str]) -> None:
    async with serving() as relay:
        operator, device = controller(relay), await relay.daemon().connect(limit=1)
        projection = await current(operator)
        field = steal(projection)
        request = wire.ReplaceProjectionRequest(expected_revision=projection.revision, projection=projection)
        refusal = await operator.refused("ReplaceProjection", request)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
        assert field in refusal.fields
        assert relay.source.current == PROJECTION
        await device.settle()
        await relay.enqueue("job-1")
        assert (await device.next("granted")).stub.id == "job-1"


def test_a_file_that_gives_a_key_to_two_owners_is_refused() -> None:
    projection = replace(PROJECTION, devices=(*PROJECTION.devices, STOLEN))
    with pytest.raises(ProjectionError) as caught:
        parse_projection(format_projection(projection), "projection.json")
    assert "devices[3].device.identity: repeats devices[0].device.identity" in str(caught.value)


@pytest.mark.process
async def test_a_running_relay_does_not_follow_such_a_file(tmp_path: Path) -> None:
    """It says so, and goes on with what it had."""
    sites = daemon_plane_pb2.GetSitesRequest()
    async with relay_process(tmp_path) as (process, address), grpc.aio.insecure_channel(address) as channel:
        stolen = replace(PROJECTION, devices=(*PROJECTION.devices, STOLEN), revision=7)
        await asyncio.to_thread((tmp_path / "projection.json").write_text, format_projection(stolen), "utf-8")
        await process.wait_line("two devices cannot share a key")
        honest = RawDaemon(channel, "runner-1", keys_of("runner-1"), now_ms)
        assert (await honest.call("GetSites", sites)).directory.sites
        thief = RawDaemon(channel, "runner-m", keys_of("runner-1"), now_ms)
        refusal = await thief.refused("GetSites", sites)
        assert (refusal.code, refusal.reason) == BAD_SIGNATURE


async def test_a_device_that_changes_hands_works_for_its_new_owner_alone() -> None:
    """Its stream ends, its leases go back, and it comes back as the new owner's device."""
    async with serving() as relay:
        operator, device = controller(relay), await relay.daemon().connect(limit=1)
        await relay.enqueue("of-alice")
        held = ref(await device.next("granted"))
        await device.send(grant_ack={"leases": [held]})
        await device.settle()
        projection = await current(operator)
        projection.devices[0].owner = "bob"
        del projection.rosters[:]
        request = wire.ReplaceProjectionRequest(expected_revision=projection.revision, projection=projection)
        await operator.call("ReplaceProjection", request)
        refusal = await device.end()
        assert refusal is not None
        assert (refusal.code, refusal.reason) == BAD_SIGNATURE
        await relay.becomes("of-alice", "queued")
        verdicts = await _renewed(relay, held)
        assert verdicts[0].state == job_pb2.LEASE_STATE_LOST
        again = await relay.daemon().connect(limit=5, process_id="process-2")
        await relay.enqueue("of-bob", owner="bob")
        assert (await again.next("granted")).stub.id == "of-bob"
        await again.settle()
        assert not again.take("granted")
        (granted,) = (await relay.daemon("runner-2").call("ClaimJobs", claim("alice"))).granted
        assert granted.stub.id == "of-alice"


async def _renewed(relay: RelayUnderTest, lease: Any) -> Any:

    request = daemon_plane_pb2.RenewLeasesRequest(leases=[lease])
    return (await relay.daemon().call("RenewLeases", request)).verdicts


async def test_a_device_is_not_known_by_the_name_that_it_had() -> None:
    """A key that moves to a new runner id is the new device; its old name is nobody's."""
    async with serving() as relay:
        moved = replace(PROJECTION.devices[0], runner_id="runner-new")
        devices = (moved, *PROJECTION.devices[1:])
        relay.source.replace(replace(PROJECTION, devices=devices))

        old = await relay.daemon().refused("GetSites", daemon_plane_pb2.GetSitesRequest())
        assert (old.code, old.reason) == BAD_SIGNATURE
        new = relay.daemon("runner-new", keys=keys_of("runner-1"))
        assert (await new.call("GetSites", daemon_plane_pb2.GetSitesRequest())).directory.sites


async def test_a_device_whose_key_was_replaced_is_the_old_key_no_more() -> None:
    async with serving() as relay:
        relay.source.replace(with_device(replace(PROJECTION.devices[0], identity=keys_of("new").public)))

        refusal = await relay.daemon().refused("ClaimJobs", claim())
        assert (refusal.code, refusal.reason) == BAD_SIGNATURE
        await relay.daemon(keys=keys_of("new")).call("GetSites", daemon_plane_pb2.GetSitesRequest())


@pytest.mark.parametrize("method", [method for method in REQUESTS if not of_site(method)])
async def test_a_revoked_device_is_refused_by_every_method(method: str) -> None:
    async with scene() as relay:
        relay.source.replace(with_device(replace(PROJECTION.devices[0], revoked=True)))
        await relay.becomes("held", "queued")
        before = await relay.dump()
        refusal = await relay.daemon().refused(method, REQUESTS[method])
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "DEVICE_REVOKED")
        assert await relay.dump() == before
