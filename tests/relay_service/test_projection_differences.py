from dataclasses import replace

from relay_service.core.projection import (
    Consent,
    ProjectedDevice,
    ProjectedSite,
    Projection,
    Roster,
    SuccessionLink,
)
from relay_service.projection_differences import differences
from tests.relay_service.projection_documents import made_identity

ONE, TWO = made_identity(1), made_identity(2)
SITE = ProjectedSite("demo", ONE)
DEVICE = ProjectedDevice("alice", "laptop", ONE)
FULL = Projection(
    sites=(SITE,),
    consents=(Consent("alice", "demo"),),
    devices=(DEVICE,),
    rosters=(Roster("team", "alice", ("bob",)),),
    revoked=(("bob", "demo"),),
    revision=7,
)
EMPTY = Projection()


def test_nothing_changed() -> None:
    assert differences(FULL, replace(FULL, revision=8)) == []


def test_everything_came() -> None:
    assert differences(EMPTY, FULL) == [
        f"site demo added with key {ONE.key_id}",
        f"device laptop of alice added with key {ONE.key_id}",
        "consent of alice to demo given",
        "consent of bob to demo revoked",
        "roster team of alice: bob",
    ]


def test_everything_went() -> None:
    assert differences(FULL, EMPTY) == [
        "site demo removed",
        "device laptop of alice removed",
        "consent of alice to demo removed",
        "revocation of bob's consent to demo lifted",
        "roster team of alice removed",
    ]


def test_what_a_part_has_become() -> None:
    link = SuccessionLink(TWO, b"signature")
    new = replace(
        FULL,
        sites=(replace(SITE, succeeds=(link,)),),
        consents=(Consent("alice", "demo", paused=True), Consent("carol", "demo", paused=True)),
        devices=(
            ProjectedDevice("bob", "laptop", TWO, revoked=True),
            ProjectedDevice("bob", "old", ONE, revoked=True),
        ),
        rosters=(Roster("team", "alice", ()),),
    )
    assert differences(FULL, new) == [
        "earlier keys of site demo changed",
        "device laptop of bob revoked",
        "device laptop belongs to bob, no more to alice",
        f"device laptop has the key {TWO.key_id}",
        f"device old of bob added as revoked with key {ONE.key_id}",
        "consent of alice to demo paused",
        "consent of carol to demo given and paused",
        "roster team of alice: nobody",
    ]
    assert differences(new, FULL)[:2] == [
        "earlier keys of site demo changed",
        "device laptop of alice admitted again",
    ]
    assert "consent of alice to demo resumed" in differences(new, FULL)


def test_a_site_with_another_key() -> None:
    new = replace(FULL, sites=(ProjectedSite("demo", TWO, (SuccessionLink(ONE, b"s"),)),))
    assert differences(FULL, new) == [f"site demo has the key {TWO.key_id}"]


def test_more_than_anybody_reads_is_counted() -> None:
    many = replace(EMPTY, consents=tuple(Consent(f"person-{number}", "demo") for number in range(50)))
    lines = differences(EMPTY, many)
    assert len(lines) == 21
    assert lines[19:] == ["consent of person-19 to demo given", "and 30 more"]
