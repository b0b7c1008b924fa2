import json

import pytest

from relay_service.core.projection import Projection
from relay_service.projection_file import (
    ProjectionError,
    parse_projection,
)
from tests.relay_service.projection_documents import (
    DEVICE,
    SITE,
    fixture,
)

PARTS = "sites, consents, devices, rosters, revoked, revision"


def parsed(document: object) -> Projection:
    return parse_projection(json.dumps(document), "p.json")


class TestPlaces:
    def found(self, text: str) -> list[str]:
        with pytest.raises(ProjectionError) as caught:
            parse_projection(text, "p.json")
        return str(caught.value).splitlines()

    def test_each_problem_has_the_line_of_its_field(self) -> None:
        text = """{
          "sites": [{"siteId": "demo",
                     "site": %s}],
          "consents": [
            {"owner": "alice", "siteId": "demo", "paused":
              1},
            {"siteId": "demo",
             "paused": true}],
          "devices": [{"runnerId": "laptop", "owner": "al\\u0000ice",
             "device": {
               "encryption": "",
               "identity": [{"a": 1}, 2]}}],
        "more": {}}"""

        assert self.found(text % json.dumps(SITE)) == [
            "p.json:13: more: is not a known field; known here: " + PARTS,
            "p.json:5: consents[0].paused: must be true or false, not a number",
            "p.json:7: consents[1].owner: is missing",
            "p.json:9: devices[0].owner: must not have control characters or broken Unicode",
            "p.json:12: devices[0].device.identity: must be text, not a list",
            "p.json:11: devices[0].device.encryption: must be 32 bytes as unpadded base64url (43 characters)",
            "p.json:10: devices[0].device.encryptionSig: is missing",
        ]

    def test_a_key_that_is_there_twice(self) -> None:
        assert self.found('{"consents": [],\n"sites": [],\n "revoked": [],\n"sites": []}') == [
            "p.json:4: sites: is there more than once"
        ]

    def test_a_key_that_is_there_twice_far_inside(self) -> None:
        text = '{"consents": [], "devices": [\n{"owner": "a",\n"owner": "b", "runnerId": "r", "device": %s}]}'

        assert self.found(text % json.dumps(DEVICE)) == [
            "p.json:3: devices[0].owner: is there more than once"
        ]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", "p.json:1: is empty"),
            (" \n", "p.json:1: is empty"),
            (
                '{"consents": [],\n "sites": [}',
                "p.json:2: is not JSON: Expecting value (column 12)",
            ),
            (
                '{"consents": [],\n "sites": [',
                "p.json:2: is not JSON: Expecting value (column 12); the text ends too early",
            ),
            (
                '{"consents": [],\n "sit',
                "p.json:2: is not JSON: Unterminated string starting at (column 2); the text ends too early",
            ),
            ('{"consents": []} x', "p.json:1: is not JSON: Extra data (column 18)"),
            ("[" * 100_000, "p.json: is nested too deeply"),
            ('{"revision": ' + "9" * 5000 + "}", "p.json: holds a number that is too long"),
        ],
    )
    def test_text_that_is_not_json(self, text: str, expected: str) -> None:
        assert self.found(text) == [expected]

    def test_bytes_that_are_not_utf8(self) -> None:
        with pytest.raises(ProjectionError, match=r"^p\.json:2: is not UTF-8 text$"):
            parse_projection(b'{"consents": [\n"\xff"]}', "p.json")

    def test_not_a_number(self) -> None:
        assert self.found('{"consents": [], "revision": NaN}') == [
            "p.json:1: revision: must be a whole number, not a number"
        ]

    def test_only_the_first_hundred_problems_are_shown(self) -> None:
        consents = [{"owner": "", "siteId": "demo"}] * 250

        with pytest.raises(ProjectionError) as caught:
            parsed(fixture(consents=consents))

        assert len(caught.value.problems) == 100
        assert caught.value.total == 250
        assert str(caught.value).endswith("\n... and 150 more problems")
        assert caught.value.summary == (
            "p.json:1: consents[0].owner: must have 1 to 128 characters, not 0 (and 249 more)"
        )
