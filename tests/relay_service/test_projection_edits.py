import json

import pytest

from relay_service.core.identity import PublicIdentity
from relay_service.core.projection import Consent, Projection, Roster
from relay_service.projection_edits import (
    Edit,
    EditError,
    add_device,
    add_site,
    grant_consent,
    pause_consent,
    remove_roster,
    revoke_consent,
    revoke_device,
    set_roster,
)
from relay_service.projection_file import parse_projection
from tests.relay_service.projection_documents import DEVICE, OTHER, SITE2, fixture

CURRENT = parse_projection(json.dumps(fixture()), "p.json")
NEW = PublicIdentity.from_json(DEVICE)


def refused(call: object, *arguments: object, **options: object) -> str:
    assert callable(call)
    with pytest.raises(EditError) as caught:
        call(CURRENT, *arguments, **options)
    return str(caught.value)


def test_a_site_is_added_after_the_others() -> None:
    edit = add_site(CURRENT, "blog", NEW)

    assert [site.site_id for site in edit.projection.sites] == ["demo", "wiki", "blog"]
    assert edit.projection.sites[2].identity == NEW
    assert edit.summary == "site blog added with key BYOLLM-SRDB-C2RJ-2NT5-434J-KAAS-PFT0"


def test_a_site_that_is_there() -> None:
    assert add_site(CURRENT, "demo", PublicIdentity.from_json(SITE2)).projection == CURRENT
    assert refused(add_site, "demo", NEW) == (
        "site demo is registered with another key, BYOLLM-J519-3K89-KJN3-R4FM-K64Y-4Q38; for a new key, use "
        "relay-service sites rotate, or edit the file: put the old key and its signed succession under "
        "succeeds, and the new key under site"
    )


def test_a_device_is_added_after_the_others() -> None:
    edit = add_device(CURRENT, "phone", "bob", PublicIdentity.from_json(OTHER))

    assert [(each.owner, each.runner_id) for each in edit.projection.devices] == [
        ("alice", "laptop"),
        ("bob", "phone"),
    ]
    assert edit.summary == "device phone of bob added with key BYOLLM-5THB-AYZV-W1RR-G02J-ZRFY-T43A"


def test_a_device_that_is_there() -> None:
    assert add_device(CURRENT, "laptop", "alice", NEW).projection == CURRENT
    expected = (
        "runner id laptop belongs to a device of alice with key BYOLLM-SRDB-C2RJ-2NT5-434J-KAAS-PFT0: "
        "choose another"
    )
    assert refused(add_device, "laptop", "bob", NEW) == expected
    assert refused(add_device, "laptop", "alice", PublicIdentity.from_json(OTHER)) == expected


def test_a_revoked_device_never_comes_back() -> None:
    edit = revoke_device(CURRENT, "laptop")

    assert [each.revoked for each in edit.projection.devices] == [True]
    assert edit.summary == "device laptop of alice revoked"
    assert revoke_device(edit.projection, "laptop").projection == edit.projection
    with pytest.raises(
        EditError, match=r"^device laptop is revoked for ever: give it new keys and another runner"
    ):
        add_device(edit.projection, "laptop", "alice", NEW)


def test_a_device_that_is_not_there_cannot_be_revoked() -> None:
    assert refused(revoke_device, "tablet") == "no device has the runner id tablet"


def test_a_consent_is_given() -> None:
    edit = grant_consent(CURRENT, "alice", "wiki")

    assert edit.projection.consents[3:] == (Consent("alice", "wiki"),)
    assert edit.projection.may_route("alice", "wiki")
    assert edit.summary == "alice consents to wiki"


def test_a_consent_that_stands() -> None:
    assert grant_consent(CURRENT, "alice", "demo").projection == CURRENT
    assert refused(grant_consent, "bob", "demo") == "bob has consented to demo and paused it: resume it"


def test_a_consent_to_an_unknown_site() -> None:
    expected = "no site has the id blog (registered: demo, wiki); add it first"
    assert refused(grant_consent, "alice", "blog") == expected
    assert refused(pause_consent, "alice", "blog", paused=True) == expected


def test_pausing_and_resuming() -> None:
    paused = pause_consent(CURRENT, "alice", "demo", paused=True)
    resumed = pause_consent(paused.projection, "alice", "demo", paused=False)

    assert paused.projection.consents[0] == Consent("alice", "demo", paused=True)
    assert paused.summary == "consent of alice to demo paused"
    assert resumed.projection == CURRENT
    assert resumed.summary == "consent of alice to demo resumed"


def test_a_consent_that_does_not_stand_cannot_be_paused() -> None:
    expected = "alice does not consent to wiki: give the consent first"
    assert refused(pause_consent, "alice", "wiki", paused=True) == expected


def test_a_revoked_consent_is_given_again() -> None:
    revoked = revoke_consent(CURRENT, "alice", "demo")

    assert revoked.projection.consents == (Consent("bob", "demo", paused=True), Consent("bob", "wiki"))
    assert revoked.projection.revoked == (("carol", "gone"), ("alice", "demo"))
    assert revoked.summary == "consent of alice to demo revoked"
    assert revoke_consent(revoked.projection, "alice", "demo").projection == revoked.projection

    given = grant_consent(revoked.projection, "alice", "demo").projection
    assert given.may_route("alice", "demo")
    assert given.revoked == (("carol", "gone"),)


def test_a_consent_that_a_revocation_overrides_is_given_again() -> None:
    overridden = Projection(
        sites=CURRENT.sites, consents=(Consent("alice", "demo", paused=True),), revoked=(("alice", "demo"),)
    )

    edit = grant_consent(overridden, "alice", "demo")

    assert edit.projection.consents == (Consent("alice", "demo"),)
    assert edit.projection.revoked == ()


def test_a_consent_that_was_never_given_cannot_be_revoked() -> None:
    assert refused(revoke_consent, "dave", "demo") == "dave has not consented to demo"


def test_a_roster_is_set_as_a_whole() -> None:
    edit = set_roster(CURRENT, "team", "alice", ["carol", "dave", "carol"])

    assert edit == Edit(edit.projection, "roster team of alice: carol, dave")
    assert edit.projection.rosters == (Roster("team", "alice", ("carol", "dave")),)
    assert set_roster(edit.projection, "team", "alice", ["carol", "dave"]).projection == edit.projection


def test_rosters_of_others_stay() -> None:
    edit = set_roster(CURRENT, "team", "bob", ["carol"])

    assert edit.projection.rosters == (
        Roster("team", "alice", ("alice", "bob")),
        Roster("team", "bob", ("carol",)),
    )
    assert remove_roster(edit.projection, "team", "alice").projection.rosters == (
        Roster("team", "bob", ("carol",)),
    )
    assert refused(remove_roster, "team", "bob") == "bob has no roster team"
