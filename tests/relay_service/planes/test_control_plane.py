"""The operator's decisions over the wire: who may make them, what they do, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from relay_service.client.succession import sign_link
from relay_service.core.projection import Consent, ProjectedSite, Roster, SuccessionLink
from relay_service.planes.convert import identity_to_proto
from relay_service.planes.projection_messages import projection_to_proto
from sealwork.relay.v1 import control_plane_pb2 as wire
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawOperator, Refusal, message_type, method_of
from tests.relay_service.relay_fixture import (
    PROJECTION,
    START_MS,
    RelayUnderTest,
    keys_of,
    serving,
    timestamp,
)

CONTROL = "ControlPlaneService"
METHODS = [method.name for method in wire.DESCRIPTOR.services_by_name[CONTROL].methods]
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


class Controller(RawOperator):
    service = CONTROL

    async def change(self, **change: Any) -> Any:
        return await self.call("ChangeProjection", wire.ChangeProjectionRequest(**change))

    async def change_refused(self, **change: Any) -> Refusal:
        return await self.refused("ChangeProjection", wire.ChangeProjectionRequest(**change))

    async def projection(self) -> wire.Projection:
        answer = await self.call("GetProjection", wire.GetProjectionRequest())
        projection: wire.Projection = answer.projection
        return projection


def controller(relay: RelayUnderTest, name: str = "operator", keys: str = "operator") -> Controller:
    return Controller(relay.channel, name, keys_of(keys), relay.clock.now_ms)


def identity(name: str) -> Any:
    return identity_to_proto(keys_of(name).public)


@pytest.fixture
async def relay() -> AsyncIterator[RelayUnderTest]:
    async with serving(operators={name: keys_of(name).public for name in ("operator", "erin")}) as running:
        yield running


# -- who --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_is_for_operators_alone(relay: RelayUnderTest, method: str) -> None:
    body = message_type(CONTROL, method)().SerializeToString()
    for name, keys in (
        ("operator", "stranger"),
        ("demo", "demo"),
        ("runner-1", "runner-1"),
        ("erin", "operator"),
    ):
        caller = controller(relay, name, keys)
        call: Any = relay.channel.unary_stream if method == "WatchProjection" else relay.channel.unary_unary
        running = call(method_of(CONTROL, method))(body, metadata=caller.signed(method, body), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (running.read() if method == "WatchProjection" else running)
        assert (
            Refusal.of_call(caught.value.code(), caught.value.trailing_metadata()).reason == "BAD_SIGNATURE"
        )


async def test_each_operator_has_a_name_and_a_key(relay: RelayUnderTest) -> None:
    assert (await controller(relay, "erin", "erin").projection()).revision == 0


# -- the whole --------------------------------------------------------------------------


async def test_the_projection_is_read_as_it_is(relay: RelayUnderTest) -> None:
    link = sign_link(keys_of("old"), keys_of("demo").key_id)
    relay.source.replace(
        replaced(
            sites=(
                ProjectedSite(
                    "demo", keys_of("demo").public, (SuccessionLink(link.identity, link.signature),), START_MS
                ),
            ),
            consents=(Consent("alice", "demo", paused=True),),
            rosters=(Roster("friends", "bob", ("alice", "carol")),),
            revoked=(("bob", "demo"),),
        )
    )
    projection = await controller(relay).projection()
    assert projection.revision == 1
    (site,) = projection.sites
    assert (site.site_id, site.identity, site.retiring_until_time) == (
        "demo",
        identity("demo"),
        timestamp(START_MS),
    )
    assert [(each.identity, len(each.signature)) for each in site.succeeds] == [(identity("old"), 64)]
    assert [(each.owner, each.site_id, each.paused) for each in projection.consents] == [
        ("alice", "demo", True)
    ]
    assert [(each.runner_id, each.owner, each.revoked) for each in projection.devices] == [
        ("runner-1", "alice", False),
        ("runner-2", "alice", False),
        ("runner-b", "bob", False),
    ]
    assert [(each.id, each.owner, list(each.members)) for each in projection.rosters] == [
        ("friends", "bob", ["alice", "carol"])
    ]
    assert [(each.owner, each.site_id) for each in projection.revoked] == [("bob", "demo")]


def replaced(**parts: Any) -> Any:
    from dataclasses import replace

    return replace(PROJECTION, **parts)


async def test_a_projection_that_was_read_can_be_put_back_changed(relay: RelayUnderTest) -> None:
    operator = controller(relay)
    projection = await operator.projection()
    projection.consents.add(owner="carol", site_id="demo")
    request = wire.ReplaceProjectionRequest(expected_revision=0, projection=projection)
    assert (await operator.call("ReplaceProjection", request)).revision == 1
    assert relay.source.current.may_route("carol", "demo")
    # The answer was lost, and the request comes again.
    assert (await operator.call("ReplaceProjection", request)).revision == 1
    assert relay.source.current.revision == 1


async def test_a_projection_made_from_another_revision_is_refused(relay: RelayUnderTest) -> None:
    operator = controller(relay)
    projection = await operator.projection()
    await operator.change(grant_consent=wire.GrantConsent(owner="carol", site_id="demo"))
    for expected in (0, 2):
        request = wire.ReplaceProjectionRequest(expected_revision=expected, projection=projection)
        refusal = await operator.refused("ReplaceProjection", request)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "PROJECTION_CONFLICT")
        assert refusal.metadata == (("revision", "1"),)
    assert relay.source.current.may_route("carol", "demo")


async def test_everything_that_is_wrong_is_named_by_its_field(relay: RelayUnderTest) -> None:
    operator = controller(relay)
    projection = projection_to_proto(PROJECTION)
    projection.sites[1].identity.encryption_signature = b"\x01" * 64
    projection.sites[1].site_id = "dé"
    projection.devices[0].runner_id = ""
    projection.devices[1].identity.identity = b"short"
    projection.devices[2].identity.CopyFrom(identity("runner-1"))
    projection.rosters[0].members.append("x" * 129)
    projection.sites[0].succeeds.add(identity=identity("old"), signature=b"\x02" * 64)
    request = wire.ReplaceProjectionRequest(expected_revision=0, projection=projection)
    refusal = await operator.refused("ReplaceProjection", request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert sorted(refusal.fields) == [
        "projection.devices[0].runner_id",
        "projection.devices[1].identity.identity",
        "projection.devices[2].identity.identity",
        "projection.rosters[0].members[1]",
        "projection.sites[0].succeeds[0].signature",
        "projection.sites[1].identity.encryption_signature",
        "projection.sites[1].site_id",
    ]
    assert relay.source.current.revision == 0


async def test_a_consent_to_no_site_is_refused(relay: RelayUnderTest) -> None:
    projection = projection_to_proto(PROJECTION)
    projection.consents.add(owner="carol", site_id="demi")
    request = wire.ReplaceProjectionRequest(expected_revision=0, projection=projection)
    refusal = await controller(relay).refused("ReplaceProjection", request)
    assert refusal.fields == ("projection.consents[4].site_id",)
    assert 'did you mean "demo"?' in refusal.message


# -- one change -------------------------------------------------------------------------


async def test_each_change_does_what_it_says_once(relay: RelayUnderTest) -> None:
    operator = controller(relay)
    link = sign_link(keys_of("shop"), keys_of("shop-2").key_id)
    steps: list[tuple[dict[str, Any], str]] = [
        (
            {"add_site": wire.AddSite(site_id="shop", identity=identity("shop"))},
            f"site shop added with key {keys_of('shop').key_id}",
        ),
        (
            {"grant_consent": wire.GrantConsent(owner="carol", site_id="shop")},
            "carol consents to shop",
        ),
        (
            {"pause_consent": wire.PauseConsent(owner="carol", site_id="shop")},
            "consent of carol to shop paused",
        ),
        (
            {"resume_consent": wire.ResumeConsent(owner="carol", site_id="shop")},
            "consent of carol to shop resumed",
        ),
        (
            {
                "rotate_site": wire.RotateSite(
                    site_id="shop",
                    identity=identity("shop-2"),
                    signature=link.signature,
                    retiring_until_time=timestamp(START_MS + 1000),
                )
            },
            f"site shop moved to the key {keys_of('shop-2').key_id}",
        ),
        (
            {"add_device": wire.AddDevice(runner_id="desk", owner="carol", identity=identity("desk"))},
            f"device desk of carol added with key {keys_of('desk').key_id}",
        ),
        (
            {
                "add_roster_members": wire.AddRosterMembers(
                    roster_id="team", owner="carol", members=["alice", "bob"]
                )
            },
            "roster team of carol: alice, bob",
        ),
        (
            {
                "remove_roster_members": wire.RemoveRosterMembers(
                    roster_id="team", owner="carol", members=["bob"]
                )
            },
            "roster team of carol: alice",
        ),
        (
            {"remove_roster_members": wire.RemoveRosterMembers(roster_id="team", owner="carol")},
            "roster team of carol removed",
        ),
        ({"revoke_device": wire.RevokeDevice(runner_id="desk")}, "device desk of carol revoked"),
        (
            {"revoke_consent": wire.RevokeConsent(owner="carol", site_id="shop")},
            "consent of carol to shop revoked",
        ),
        ({"remove_site": wire.RemoveSite(site_id="shop")}, "site shop removed"),
    ]
    for number, (change, summary) in enumerate(steps, 1):
        answer = await operator.change(**change)
        assert (answer.revision, answer.summary, answer.changed) == (number, summary, True)
        again = await operator.change(**change)
        assert (again.revision, again.changed) == (number, False)
        assert relay.source.current.revision == number


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({}, ("change",)),
        (
            {"add_site": wire.AddSite(site_id="a b ", identity=identity("shop"))},
            ("add_site.site_id",),
        ),
        (
            {"add_site": wire.AddSite(site_id="shop")},
            (
                "add_site.identity.identity",
                "add_site.identity.encryption",
                "add_site.identity.encryption_signature",
            ),
        ),
        (
            {"add_site": wire.AddSite(site_id="shop", identity=identity("demo"))},
            ("add_site.identity.identity",),
        ),
        (
            {"add_device": wire.AddDevice(runner_id="", owner="\n", identity=identity("runner-1"))},
            ("add_device.runner_id", "add_device.owner"),
        ),
        (
            {"add_device": wire.AddDevice(runner_id="new", owner="bob", identity=identity("runner-1"))},
            ("add_device.identity.identity",),
        ),
        (
            {
                "rotate_site": wire.RotateSite(
                    site_id="demo", identity=identity("new"), signature=b"\x01" * 64
                )
            },
            ("rotate_site.signature",),
        ),
        (
            {"rotate_site": wire.RotateSite(site_id="demo", identity=identity("new"), signature=b"\x01")},
            ("rotate_site.signature",),
        ),
        (
            {"add_roster_members": wire.AddRosterMembers(roster_id="", owner="bob")},
            ("add_roster_members.members", "add_roster_members.roster_id"),
        ),
    ],
)
async def test_a_change_that_is_not_well_formed(
    relay: RelayUnderTest, change: dict[str, Any], fields: tuple[str, ...]
) -> None:
    refusal = await controller(relay).change_refused(**change)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert sorted(refusal.fields) == sorted(fields)
    assert relay.source.current == PROJECTION


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"grant_consent": wire.GrantConsent(owner="carol", site_id="demi")},
            "no site has the id demi (registered: demo, other); add it first",
        ),
        ({"revoke_device": wire.RevokeDevice(runner_id="none")}, "no device has the runner id none"),
        (
            {"pause_consent": wire.PauseConsent(owner="carol", site_id="demo")},
            "carol does not consent to demo: give the consent first",
        ),
    ],
)
async def test_a_change_that_does_not_fit_says_why(
    relay: RelayUnderTest, change: dict[str, Any], message: str
) -> None:
    refusal = await controller(relay).change_refused(**change)
    assert (refusal.code, refusal.reason, refusal.message) == (
        PRECONDITION,
        "PROJECTION_CHANGE_REFUSED",
        message,
    )


async def test_a_change_can_name_the_revision_it_was_made_from(relay: RelayUnderTest) -> None:
    operator = controller(relay)
    grant = wire.GrantConsent(owner="carol", site_id="demo")
    assert (await operator.change(expected_revision=0, grant_consent=grant)).revision == 1
    refusal = await operator.change_refused(
        expected_revision=0, revoke_device=wire.RevokeDevice(runner_id="runner-1")
    )
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "PROJECTION_CONFLICT")


async def test_operators_at_the_same_time_never_undo_each_other(relay: RelayUnderTest) -> None:
    people = [f"person-{number}" for number in range(20)]
    answers = await asyncio.gather(
        *(
            controller(relay, *(("erin", "erin") if number % 2 else ())).change(
                grant_consent=wire.GrantConsent(owner=person, site_id="demo")
            )
            for number, person in enumerate(people)
        )
    )
    assert sorted(answer.revision for answer in answers) == list(range(1, 21))
    assert all(relay.source.current.may_route(person, "demo") for person in people)


# -- following --------------------------------------------------------------------------


@asynccontextmanager
async def watching(relay: RelayUnderTest) -> AsyncIterator[Any]:
    body = wire.WatchProjectionRequest().SerializeToString()
    call: Any = relay.channel.unary_stream(method_of(CONTROL, "WatchProjection"))(
        body, metadata=controller(relay).signed("WatchProjection", body), timeout=60
    )
    try:
        yield call
    finally:
        call.cancel()


async def revision_of(call: Any) -> int:
    frame = wire.WatchProjectionResponse.FromString(await asyncio.wait_for(call.read(), 10))
    return frame.projection.revision


async def test_watching_begins_with_what_is_in_force_and_hears_each_change(relay: RelayUnderTest) -> None:
    async with watching(relay) as call:
        assert await revision_of(call) == 0
        await controller(relay).change(grant_consent=wire.GrantConsent(owner="carol", site_id="demo"))
        assert await revision_of(call) == 1
        await controller(relay).change(revoke_device=wire.RevokeDevice(runner_id="runner-1"))
        assert await revision_of(call) == 2


async def test_the_latest_is_sent_again_as_a_sign_of_life(relay: RelayUnderTest) -> None:
    async with watching(relay) as call:
        assert await revision_of(call) == 0
        again = asyncio.ensure_future(revision_of(call))
        await relay.clock.advance_async(14_999)
        assert not again.done()
        await relay.clock.advance_async(1)
        assert await again == 0


async def test_watching_ends_with_the_relay(relay: RelayUnderTest) -> None:
    async with watching(relay) as call:
        assert await revision_of(call) == 0
        drained = relay.drain()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        await drained
        refusal = Refusal.of_call(caught.value.code(), caught.value.trailing_metadata())
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")


async def test_a_watcher_that_leaves_is_forgotten(relay: RelayUnderTest) -> None:
    before = len(relay.source._listeners)
    async with watching(relay) as call:
        await revision_of(call)
        assert len(relay.source._listeners) == before + 1
    await eventually(lambda: len(relay.source._listeners) == before)
