"""What parties hear when everything happens: not a name, job or key beyond what each is meant to learn.

Every byte that a site or a device receives is kept, statuses and metadata included, and searched for every
name there is. That nothing is missed is proved by the descriptors: whatever field a message can carry has
been carried.
"""

from collections.abc import Mapping

import pytest

from sealwork.relay.v1 import daemon_plane_pb2, site_plane_pb2
from tests.relay_service.relay_fixture import keys_of
from tests.relay_service.routes.everything import Everything, at_one_relay, at_two_relays
from tests.relay_service.routes.happenings import happen
from tests.relay_service.routes.recording import Record, reachable
from tests.relay_service.store.valkey_fixture import TcpServer, empty

PLANES = (
    site_plane_pb2.DESCRIPTOR.services_by_name["SitePlaneService"],
    daemon_plane_pb2.DESCRIPTOR.services_by_name["DaemonPlaneService"],
)
ROSTERS = ("roster-harbour", "roster-meadow")
PEOPLE = ("owner-olga", "owner-pavel", "owner-sven", "member-quentin", "member-ruth", "member-tove")
SITES = ("site-amber", "site-birch", "site-cedar")
# The last one is the runner id of every device that was paired: made of its label and a part by chance.
DEVICES = ("runner-olga", "runner-idle", "runner-pavel", "runner-sven", "alice-s-desk")
JOBS = (
    "amber-shared",
    "amber-private",
    "amber-cancelled",
    "amber-refused",
    "amber-unsealed",
    "amber-brief",
    "amber-batch",
    "declined-by-policy",
    "birch-shared",
    "birch-ended",
)
BODIES = ("sealed-for-pavel", "answer-of-pavel", "sealed-by-birch", "sealed-for-olga", "answer-of-olga")
KEYS = (
    *SITES,
    *DEVICES[:4],
    "amber-new",
    "new-of-pavel",
    "new-of-nobody",
    "late",
    "stranger",
    "operator",
)

# What each party has heard: the words above, and whose keys. Nothing else of them.
HEARD: Mapping[str, tuple[set[str], set[str]]] = {
    # The owner of its own stubs, and the owners of the devices that have answered.
    "site-amber": (
        {
            "owner-olga",
            "owner-pavel",
            "runner-olga",
            "runner-pavel",
            "amber-shared",
            "amber-private",
            "amber-cancelled",
            "amber-refused",
            "amber-unsealed",
            "amber-brief",
            "amber-batch",
            "declined-by-policy",
            "answer-of-pavel",
            "answer-of-olga",
        },
        {"site-amber", "runner-olga", "runner-pavel"},
    ),
    # Pavel's device gave the job back: whose it is has not become birch's business.
    "site-birch": ({"birch-shared", "birch-ended", "runner-pavel"}, {"runner-pavel"}),
    "site-cedar": (set(), set()),
    # The owners in the stubs that it was granted; of the sites nothing but their keys.
    "runner-pavel": (
        {
            "owner-olga",
            "owner-pavel",
            "member-quentin",
            "amber-shared",
            "birch-shared",
            "sealed-for-pavel",
            "sealed-by-birch",
        },
        {"site-amber", "site-birch", "runner-pavel"},
    ),
    # Three devices have asked for birch-shared by name and heard the name back.
    "runner-olga": (
        {
            "owner-olga",
            "amber-private",
            "amber-cancelled",
            "amber-refused",
            "amber-unsealed",
            "birch-shared",
            "sealed-for-olga",
        },
        {"site-amber", "amber-new", "site-cedar", "runner-olga"},
    ),
    "runner-idle": ({"birch-shared"}, {"site-amber", "amber-new", "site-cedar"}),
    "runner-sven": ({"birch-shared"}, {"site-birch"}),
    "new-of-pavel": ({"owner-pavel", "alice-s-desk"}, {"site-amber", "site-birch"}),
    "late": ({"owner-olga", "alice-s-desk"}, {"site-amber", "amber-new", "site-cedar"}),
    "new-of-nobody": (set(), set()),
    "stranger": (set(), set()),
}

# Fields that no scenario can show, each for a reason.
NEVER_CARRIED = {
    # The relay answers pings and sends none.
    ("sealwork.session.v1.Heartbeat", "ping_id"),
    # It knows people by one name alone.
    ("sealwork.relay.v1.PairingApproval", "owner_label"),
    # The same message as on a site's stream, when far more waits for a device than it may hold.
    ("sealwork.relay.v1.DaemonServerItem", "resync_required"),
}
# A lane need not run over where rows come in pages, from a Valkey server.
NEVER_CARRIED_BY_TWO = {
    ("sealwork.relay.v1.SiteServerItem", "resync_required"),
    ("sealwork.session.v1.ResyncRequired", "reason"),
}
# Kinds of error detail that the planes use.
DETAILS_USED = {"google.rpc.ErrorInfo", "google.rpc.RetryInfo", "google.rpc.BadRequest"}


@pytest.fixture(scope="module", params=["one relay", "two relays"])
async def happened(request: pytest.FixtureRequest) -> Everything:
    if request.param == "one relay":
        async with at_one_relay() as all_:
            await happen(all_)
        return all_
    server: TcpServer = request.getfixturevalue("valkey")
    empty(server.url)
    async with at_two_relays(server.url) as all_:
        await happen(all_)
    return all_


def whose_keys(record: Record) -> set[str]:
    """Whose public keys or fingerprints were heard."""
    found = set()
    for name in KEYS:
        public = keys_of(name).public
        if any(record.holds(form) for form in (public.key_id, public.identity, public.encryption)):
            found.add(name)
    return found


async def test_whatever_a_message_can_carry_was_carried(happened: Everything) -> None:
    possible = {
        (message.full_name, field.name)
        for plane in PLANES
        for method in plane.methods
        for message in reachable(method.output_type)
        for field in message.fields
    }
    carried = set().union(*(record.fields for record in happened.records.values()))
    excused = NEVER_CARRIED_BY_TWO if happened.has_two_relays else set()
    assert NEVER_CARRIED <= possible - carried <= NEVER_CARRIED | excused
    assert set().union(*(record.details for record in happened.records.values())) == DETAILS_USED


async def test_everybody_was_recorded(happened: Everything) -> None:
    assert set(happened.records) == set(HEARD)
    assert all(record.heard for record in happened.records.values())


@pytest.mark.parametrize("party", HEARD)
async def test_a_party_hears_of_nothing_else(happened: Everything, party: str) -> None:
    record, (words, keys) = happened.records[party], HEARD[party]
    everything_named = (*ROSTERS, *PEOPLE, *SITES, *DEVICES, *JOBS, *BODIES)
    assert {word for word in everything_named if record.holds(word)} == words
    assert whose_keys(record) == keys


async def test_no_party_hears_of_rosters_or_silent_members(happened: Everything) -> None:
    """Ruth and tove are admitted by rosters and have no job; no row of the table above may name them."""
    for record in happened.records.values():
        for word in (*ROSTERS, "harbour", "meadow", "ruth", "tove"):
            assert not record.holds(word)


async def test_the_search_finds_what_is_there() -> None:
    record = Record()
    record.note_metadata([("grpc-message", "roster-harbour"), ("x-bin", b"\x00ruth\x01")])
    assert record.holds("harbour")
    assert record.holds(b"ruth")
    assert not record.holds("meadow")
