import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay_service.core.identity import PublicIdentity, decode_base64url
from relay_service.core.projection import Consent, Projection, Roster
from relay_service.projection_file import (
    ProjectionError,
    format_projection,
    load_projection,
    parse_projection,
    read_projection_file,
)
from tests.relay_service.projection_documents import (
    DEVICE,
    DEVICE_KEY_ID,
    LINK,
    OTHER,
    SITE,
    SITE2,
    SITE2_KEY_ID,
    SITE_KEY_ID,
    device,
    fixture,
    made_identity,
)

NO_VOUCHER = "does not vouch for {}, the next key (order: oldest first, the current key follows)"
PARTS = "sites, consents, devices, rosters, revoked, revision"


def parsed(document: object) -> Projection:
    return parse_projection(json.dumps(document), "p.json")


def problems(document: object, **options: Any) -> list[str]:
    """The problems without file and line."""
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(ProjectionError) as caught:
        parse_projection(text, "p.json", **options)
    return [f"{each.field}: {each.reason}" for each in caught.value.problems]


def test_a_fixture_of_the_reference_loads() -> None:
    projection = parsed(fixture())

    assert [(site.site_id, site.identity.key_id) for site in projection.sites] == [
        ("demo", SITE2_KEY_ID),
        ("wiki", "BYOLLM-5THB-AYZV-W1RR-G02J-ZRFY-T43A"),
    ]
    demo = projection.sites[0]
    assert [link.identity.key_id for link in demo.succeeds] == [SITE_KEY_ID]
    assert demo.succeeds[0].signature == decode_base64url(LINK["signature"])
    assert (demo.retiring_until_ms, projection.sites[1].retiring_until_ms) == (1_790_000_000_000, None)
    assert projection.consents == (
        Consent("alice", "demo", paused=False),
        Consent("bob", "demo", paused=True),
        Consent("bob", "wiki", paused=False),
    )
    (laptop,) = projection.devices
    assert (laptop.owner, laptop.runner_id, laptop.revoked) == ("alice", "laptop", False)
    assert laptop.identity.key_id == DEVICE_KEY_ID
    assert projection.rosters == (Roster("team", "alice", ("alice", "bob")),)
    assert projection.revoked == (("carol", "gone"),)
    assert projection.revision == 0


def test_consents_alone_are_required() -> None:
    assert parsed({"consents": []}) == Projection()
    assert problems({}) == ["consents: is missing"]


def test_a_revision_is_read() -> None:
    assert parsed(fixture(revision=12)).revision == 12


def test_what_is_written_reads_the_same() -> None:
    projection = replace(parsed(fixture()), revision=3)

    assert parse_projection(format_projection(projection), "p.json") == projection


def test_written_text_is_for_people() -> None:
    text = format_projection(Projection(consents=(Consent("zoë", "demo"),), revision=2))

    assert text.startswith('{\n  "revision": 2,\n  "sites": [],\n')
    assert '"owner": "zoë"' in text
    assert text.endswith("}\n")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], ": must be an object, not a list"),
        (fixture(sites={}), "sites: must be a list, not an object"),
        (fixture(devices=["laptop"]), "devices[0]: must be an object, not text"),
        (fixture(rosters=None), "rosters: must be a list, not null"),
        (fixture(revision="1"), "revision: must be a whole number, not text"),
        (fixture(revision=True), "revision: must be a whole number, not a boolean"),
        (fixture(revision=1.5), "revision: must be a whole number, not a number"),
        (fixture(revision=-1), "revision: must be 0 to 9007199254740991"),
        (fixture(device=[]), 'device: is not a known field (did you mean "devices"?)'),
        (
            fixture(x=1),
            f"x: is not a known field; known here: {PARTS}",
        ),
        (fixture(rosters=[{"id": "t", "owner": "a"}]), "rosters[0].members: is missing"),
        (
            fixture(rosters=[{"id": "t", "owner": "a", "members": ["b", ""]}]),
            "rosters[0].members[1]: must have 1 to 128 characters, not 0",
        ),
        (
            fixture(revoked=[{"owner": "a", "siteId": "demo", "since": 1}]),
            "revoked[0].since: is not a known field; known here: owner, siteId",
        ),
        (
            fixture(
                sites=[
                    {"siteId": "demo", "site": SITE2, "retiringUntil": 0},
                    {"siteId": "wiki", "site": OTHER},
                ]
            ),
            "sites[0].retiringUntil: must be 1 to 9007199254740991",
        ),
        (
            fixture(**{"a\nb": 1}),
            f'["a\\nb"]: is not a known field; known here: {PARTS}',
        ),
    ],
)
def test_shapes(document: object, expected: str) -> None:
    assert problems(document) == [expected]


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ("", "must have 1 to 128 characters, not 0"),
        ("a" * 129, "must have 1 to 128 characters, not 129"),
        ("a\tb", "must not have control characters or broken Unicode"),
        ("a\x85b", "must not have control characters or broken Unicode"),
        ("\ud800", "must not have control characters or broken Unicode"),
        (7, "must be text, not a number"),
        (None, "must be text, not null"),
    ],
)
def test_owners(owner: object, expected: str) -> None:
    assert problems(fixture(devices=[{"owner": owner, "runnerId": "laptop", "device": DEVICE}])) == [
        f"devices[0].owner: {expected}"
    ]


@pytest.mark.parametrize("owner", ["a" * 128, "日本語", "zoë w", " ", "a\u200bb", "🔒"])
def test_owners_may_be_named_in_any_script(owner: str) -> None:
    assert parsed(fixture(devices=[device("laptop", DEVICE, owner)])).devices[0].owner == owner


@pytest.mark.parametrize("runner_id", ["é", " laptop", "laptop ", " ", "lap\u00a0top"])
def test_ids_of_callers_are_printable_ascii(runner_id: str) -> None:
    assert problems(fixture(devices=[device(runner_id, DEVICE)])) == [
        "devices[0].runnerId: must be printable ASCII without a space at either end"
    ]
    assert problems(fixture(consents=[{"owner": "alice", "siteId": runner_id}])) == [
        "consents[0].siteId: must be printable ASCII without a space at either end"
    ]


@pytest.mark.parametrize("runner_id", ["~", "a b", "!" * 128])
def test_ids_of_callers(runner_id: str) -> None:
    assert parsed(fixture(devices=[device(runner_id, DEVICE)])).devices[0].runner_id == runner_id


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            DEVICE | {"encryption": OTHER["encryption"]},
            "encryptionSig: the identity key has not signed this encryption key",
        ),
        (
            DEVICE | {"identity": OTHER["identity"]},
            "encryptionSig: the identity key has not signed this encryption key",
        ),
        (
            DEVICE | {"encryptionSig": "AA"},
            "encryptionSig: must be 64 bytes as unpadded base64url (86 characters)",
        ),
        (DEVICE | {"identity": "a" * 44}, "identity: must be 32 bytes as unpadded base64url (43 characters)"),
        (
            DEVICE | {"identity": DEVICE["identity"] + "="},
            "identity: must be 32 bytes as unpadded base64url (43 characters)",
        ),
        (
            DEVICE | {"encryption": "ü" * 43},
            "encryption: must be 32 bytes as unpadded base64url (43 characters)",
        ),
        (DEVICE | {"encryption": 5}, "encryption: must be text, not a number"),
        (
            DEVICE | {"seed": "x"},
            "seed: is not a known field; known here: identity, encryption, encryptionSig",
        ),
        ({"identity": DEVICE["identity"], "encryption": DEVICE["encryption"]}, "encryptionSig: is missing"),
    ],
)
def test_identities(keys: object, expected: str) -> None:
    assert problems(fixture(devices=[device("laptop", keys)])) == [f"devices[0].device.{expected}"]


def test_an_identity_that_is_no_object() -> None:
    assert problems(fixture(devices=[device("laptop", "key")])) == [
        "devices[0].device: must be an object, not text"
    ]


def test_repeats() -> None:
    document = fixture(
        sites=[
            {"siteId": "demo", "site": SITE},
            {"siteId": "demo", "site": SITE2},
            {"siteId": "wiki", "site": SITE},
        ],
        consents=[{"owner": "alice", "siteId": "demo"}, {"owner": "alice", "siteId": "demo", "paused": True}],
        devices=[device("laptop", DEVICE), device("laptop", OTHER), device("phone", DEVICE, "bob")],
        rosters=[
            {"id": "t", "owner": "alice", "members": []},
            {"id": "t", "owner": "bob", "members": []},
            {"id": "t", "owner": "alice", "members": ["bob"]},
        ],
    )

    assert problems(document) == [
        "sites[1].siteId: repeats sites[0].siteId; a site is listed once",
        "sites[2].site.identity: repeats sites[0].site.identity; two sites cannot share a key",
        "consents[1]: repeats consents[0]; an owner has one consent to a site",
        "devices[1].runnerId: repeats devices[0].runnerId; a device is listed once",
        "devices[2].device.identity: repeats devices[0].device.identity; two devices cannot share a key",
        "rosters[2]: repeats rosters[0]; an owner has one roster of an id",
    ]


def test_a_consent_to_an_unknown_site() -> None:
    consents = [{"owner": "alice", "siteId": "dmo"}, {"owner": "alice", "siteId": "elsewhere"}]

    assert problems(fixture(consents=consents)) == [
        'consents[0].siteId: is the id of no site in this file (did you mean "demo"?)',
        "consents[1].siteId: is the id of no site in this file",
    ]


def test_a_roster_may_name_its_owner_and_strangers() -> None:
    rosters = [{"id": "t", "owner": "alice", "members": ["alice", "nobody", "nobody"]}]

    assert parsed(fixture(rosters=rosters)).rosters == (Roster("t", "alice", ("alice", "nobody", "nobody")),)


class TestSuccession:
    def site(self, current: object, *links: object) -> dict[str, Any]:
        return fixture(sites=[{"siteId": "demo", "site": current, "succeeds": links}], consents=[])

    def test_a_link_for_another_key(self) -> None:
        assert problems(self.site(OTHER, LINK)) == [
            f"sites[0].succeeds[0].signature: {NO_VOUCHER.format('BYOLLM-5THB-AYZV-W1RR-G02J-ZRFY-T43A')}"
        ]

    def test_a_chain_that_is_not_oldest_first(self) -> None:
        oldest = {"identity": OTHER, "signature": LINK["signature"]}

        assert problems(self.site(SITE2, LINK, oldest)) == [
            f"sites[0].succeeds[0].signature: {NO_VOUCHER.format('BYOLLM-5THB-AYZV-W1RR-G02J-ZRFY-T43A')}",
            f"sites[0].succeeds[1].signature: {NO_VOUCHER.format('BYOLLM-J519-3K89-KJN3-R4FM-K64Y-4Q38')}",
        ]

    def test_a_key_that_comes_back(self) -> None:
        found = problems(self.site(SITE2, LINK, LINK))

        assert found[1] == "sites[0].succeeds[0].identity: comes back later in the chain"

    def test_a_predecessor_whose_keys_do_not_belong_together(self) -> None:
        forged = {"identity": SITE | {"encryption": OTHER["encryption"]}, "signature": LINK["signature"]}

        assert problems(self.site(SITE2, forged)) == [
            "sites[0].succeeds[0].identity.encryptionSig: the identity key has not signed this encryption key"
        ]

    def test_a_short_signature(self) -> None:
        assert problems(self.site(SITE2, {"identity": SITE, "signature": "AAAA"})) == [
            "sites[0].succeeds[0].signature: must be 64 bytes as unpadded base64url (86 characters)"
        ]

    def test_more_than_64_links(self) -> None:
        assert problems(self.site(SITE2, *[LINK] * 65)) == [
            "sites[0].succeeds: has 65 elements; at most 64 are allowed"
        ]


def test_an_identity_of_a_checked_projection_is_trusted() -> None:
    unbound = PublicIdentity(*(decode_base64url(value) for value in DEVICE.values()))
    unbound = replace(unbound, encryption=b"\x01" * 32)
    before = Projection(devices=(replace(parsed(fixture()).devices[0], identity=unbound),))
    document = fixture(devices=[device("laptop", unbound.to_json())])

    assert parse_projection(json.dumps(document), "p.json", before).devices[0].identity == unbound
    assert problems(document) == [
        "devices[0].device.encryptionSig: the identity key has not signed this encryption key"
    ]


def test_ten_thousand_devices() -> None:
    devices = [device(f"runner-{number}", made_identity(number).to_json()) for number in range(10_000)]

    projection = parsed(fixture(devices=devices))

    assert len(projection.devices) == 10_000
    last = projection.device("runner-9999")
    assert last is not None
    assert last.identity == made_identity(9999)


class TestReading:
    def test_a_file_is_loaded(self, tmp_path: Path) -> None:
        path = tmp_path / "p.json"
        path.write_text(json.dumps(fixture()), encoding="utf-8")

        assert load_projection(path) == parsed(fixture())

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ProjectionError, match=r"p\.json: cannot be read: No such file or directory$"):
            read_projection_file(tmp_path / "p.json")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ProjectionError, match=r"cannot be read: Is a directory$|is not a regular file$"):
            read_projection_file(tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        import os

        os.mkfifo(tmp_path / "p.json")

        with pytest.raises(ProjectionError, match=r"p\.json: is not a regular file$"):
            read_projection_file(tmp_path / "p.json")

    def test_a_huge_file(self, tmp_path: Path) -> None:
        path = tmp_path / "p.json"
        with path.open("wb") as file:
            file.truncate(67_108_865)

        with pytest.raises(ProjectionError, match=r"p\.json: is larger than 67108864 bytes$"):
            read_projection_file(path)
