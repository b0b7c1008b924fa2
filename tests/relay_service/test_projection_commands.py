import json
from pathlib import Path

import pytest
from click.testing import Result

from relay_service.projection_file import load_projection
from tests.relay_service.command_runs import Run, run_command
from tests.relay_service.projection_documents import DEVICE, OTHER, SITE, VECTORS, fixture

PRIVATE_KEYS = "holds private keys, which no relay may see; give what the identity command prints"


@pytest.fixture
def run() -> Run:
    return run_command


@pytest.fixture
def file(tmp_path: Path, run: Run) -> Path:
    file = tmp_path / "projection.json"
    assert run("projection", "new", file).exit_code == 0
    return file


@pytest.fixture
def identities(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name, value in {"site": SITE, "device": DEVICE, "other": OTHER}.items():
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(json.dumps(value))
    return paths


class TestProjectionEdits:
    def test_a_newcomer_sets_up_a_relay(self, run: Run, file: Path, identities: dict[str, Path]) -> None:
        steps = [
            (
                ("add-site", file, "--site-id", "demo", "--identity", identities["site"]),
                "revision 2: site demo added with key BYOLLM-NSAA-KD18-HKP3-1KSC-10QG-RK69",
            ),
            (
                (
                    "add-device",
                    file,
                    "--runner-id",
                    "laptop",
                    "--owner",
                    "alice",
                    "--identity",
                    identities["device"],
                ),
                "revision 3: device laptop of alice added with key BYOLLM-SRDB-C2RJ-2NT5-434J-KAAS-PFT0",
            ),
            (
                ("consent", file, "--owner", "alice", "--site-id", "demo"),
                "revision 4: alice consents to demo",
            ),
            (
                ("consent", file, "--owner", "alice", "--site-id", "demo", "--pause"),
                "revision 5: consent of alice to demo paused",
            ),
            (
                ("consent", file, "--owner", "alice", "--site-id", "demo", "--resume"),
                "revision 6: consent of alice to demo resumed",
            ),
            (
                ("roster", file, "--id", "team", "--owner", "alice", "--member", "bob", "--member", "carol"),
                "revision 7: roster team of alice: bob, carol",
            ),
            (("consent", file, "--owner", "bob", "--site-id", "demo"), "revision 8: bob consents to demo"),
            (
                ("consent", file, "--owner", "bob", "--site-id", "demo", "--revoke"),
                "revision 9: consent of bob to demo revoked",
            ),
            (("revoke-device", file, "--runner-id", "laptop"), "revision 10: device laptop of alice revoked"),
            (
                ("roster", file, "--id", "team", "--owner", "alice", "--remove"),
                "revision 11: roster team of alice removed",
            ),
        ]
        for arguments, line in steps:
            result = run("projection", *arguments)
            assert (result.exit_code, result.output) == (0, f"{file}: {line}\n")

        projection = load_projection(file)
        assert projection.revision == 11
        assert projection.may_route("alice", "demo")
        assert not projection.may_route("bob", "demo")
        assert [each.revoked for each in projection.devices] == [True]
        assert projection.rosters == ()
        assert [each.name for each in file.parent.iterdir() if each.name.startswith(".")] == []

    def test_an_edit_that_changes_nothing_writes_nothing(
        self, run: Run, file: Path, identities: dict[str, Path]
    ) -> None:
        arguments = ("projection", "add-site", file, "--site-id", "demo", "--identity", identities["site"])
        run(*arguments)
        before = file.stat()

        result = run(*arguments)

        assert result.exit_code == 0
        assert (
            result.output == f"{file}: revision 2: nothing to change: site demo is registered with this key\n"
        )
        assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    def test_an_identity_comes_from_standard_input(self, run: Run, file: Path) -> None:
        result = run(
            "projection", "add-site", file, "--site-id", "demo", "--identity", "-", text=json.dumps(SITE)
        )

        assert result.exit_code == 0
        assert load_projection(file).sites[0].identity.to_json() == SITE

    def test_the_mode_of_the_file_is_kept(self, run: Run, file: Path, identities: dict[str, Path]) -> None:
        assert file.stat().st_mode & 0o777 == 0o600
        file.chmod(0o640)

        run("projection", "add-site", file, "--site-id", "demo", "--identity", identities["site"])

        assert file.stat().st_mode & 0o777 == 0o640

    def test_a_file_without_a_revision_gets_one(self, run: Run, file: Path) -> None:
        file.write_text(json.dumps(fixture()))

        result = run("projection", "consent", file, "--owner", "alice", "--site-id", "wiki")

        assert result.output == f"{file}: revision 1: alice consents to wiki\n"

    @pytest.mark.parametrize(
        ("arguments", "line"),
        [
            (
                ("add-site", "--site-id", "dé", "--identity", "site.json"),
                "sites[0].siteId: must be printable ASCII without a space at either end",
            ),
            (
                ("add-device", "--runner-id", "r", "--owner", "a\nb", "--identity", "device.json"),
                "devices[0].owner: must not have control characters or broken Unicode",
            ),
            (
                ("add-device", "--runner-id", "r", "--owner", "a\udcff", "--identity", "device.json"),
                "devices[0].owner: must not have control characters or broken Unicode",
            ),
            (
                ("add-site", "--site-id", "demo", "--identity", "nothing.json"),
                "nothing.json: cannot be read: No such file or directory",
            ),
            (
                ("add-site", "--site-id", "demo", "--identity", "forged.json"),
                "forged.json: encryptionSig: the identity key has not signed this encryption key",
            ),
            (
                ("add-site", "--site-id", "demo", "--identity", "list.json"),
                "list.json: must be an object, not a list",
            ),
            (
                ("add-site", "--site-id", "demo", "--identity", "private.json"),
                f"private.json: {PRIVATE_KEYS}",
            ),
            (
                ("consent", "--owner", "alice", "--site-id", "demo"),
                "no site has the id demo (registered: none yet); add it first",
            ),
            (("revoke-device", "--runner-id", "r"), "no device has the runner id r"),
        ],
    )
    def test_a_refused_edit_leaves_the_file(
        self,
        run: Run,
        file: Path,
        identities: dict[str, Path],
        monkeypatch: pytest.MonkeyPatch,
        arguments: tuple[str, ...],
        line: str,
    ) -> None:
        monkeypatch.chdir(file.parent)
        (file.parent / "forged.json").write_text(json.dumps(SITE | {"identity": OTHER["identity"]}))
        (file.parent / "list.json").write_text("[]")
        (file.parent / "private.json").write_text(json.dumps(VECTORS["keys"]["site"]))
        before = file.read_bytes()

        result = run("projection", arguments[0], file, *arguments[1:])

        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == f"Error: {line}\n"
        assert file.read_bytes() == before

    def test_a_key_of_another_owners_device(self, run: Run, file: Path, identities: dict[str, Path]) -> None:
        def add(runner_id: str, owner: str) -> Result:
            identity = identities["device"]
            return run(
                "projection",
                "add-device",
                file,
                "--runner-id",
                runner_id,
                "--owner",
                owner,
                "--identity",
                identity,
            )

        add("laptop", "alice")
        result = add("mine", "mallory")

        assert result.exit_code == 1
        assert result.stderr == (
            "Error: devices[1].device.identity: repeats devices[0].device.identity; "
            "two devices cannot share a key\n"
        )

    def test_a_broken_file_is_not_edited(self, run: Run, file: Path) -> None:
        file.write_text('{"consents": [],\n\n "sites": [],, }')

        result = run("projection", "revoke-device", file, "--runner-id", "laptop")

        assert result.exit_code == 1
        assert result.stderr == (
            f"Error: {file}:3: is not JSON: Expecting property name enclosed in double quotes (column 14)\n"
        )

    def test_a_file_that_is_not_there(self, run: Run, tmp_path: Path) -> None:
        missing = tmp_path / "nowhere" / "p.json"
        for arguments in (("check",), ("show",), ("revoke-device", "--runner-id", "r")):
            result = run("projection", arguments[0], missing, *arguments[1:])
            assert result.exit_code == 1
            assert result.stderr == (
                f"Error: {missing}: does not exist; make it with: relay-service projection new {missing}\n"
            )

    def test_a_file_that_is_there_is_not_made_anew(self, run: Run, file: Path) -> None:
        result = run("projection", "new", file)

        assert result.exit_code == 1
        assert result.stderr == f"Error: {file}: is there already and was left as it is\n"

    @pytest.mark.parametrize(
        ("arguments", "line"),
        [
            (
                ("consent", "--owner", "a", "--site-id", "s", "--pause", "--revoke"),
                "Error: give one of --pause, --resume and --revoke",
            ),
            (
                ("roster", "--id", "t", "--owner", "a"),
                "Error: name everybody with --member, or give --remove alone to delete the roster",
            ),
            (("roster", "--id", "t"), "Error: Missing option '--owner'."),
        ],
    )
    def test_options_that_do_not_go_together(
        self, run: Run, file: Path, arguments: tuple[str, ...], line: str
    ) -> None:
        result = run("projection", arguments[0], file, *arguments[1:])

        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1] == line


class TestProjectionViews:
    def test_check_counts(self, run: Run, file: Path) -> None:
        file.write_text(json.dumps(fixture(revision=3)))

        result = run("projection", "check", file)

        assert result.exit_code == 0
        lines = result.output.splitlines()
        assert lines[0] == f"{file}: valid, revision 3"
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
        assert rows == [
            ["sites", "2", "1 with an earlier key"],
            ["consents", "3", "1 paused"],
            ["devices", "1", ""],
            ["rosters", "1", ""],
            ["revoked consents", "1", ""],
        ]

    def test_check_notes_what_is_probably_not_meant(self, run: Run, file: Path) -> None:
        revoked = [{"owner": "alice", "siteId": "demo"}]
        file.write_text(json.dumps(fixture(revoked=revoked)))

        result = run("projection", "check", file)

        assert result.exit_code == 0
        assert result.output.splitlines()[-2:] == [
            "note: the consent of alice to demo has no effect: the pair is under revoked as well",
            "note: device laptop gets no work: its owner alice consents to no site",
        ]

    def test_check_tells_every_problem_with_its_line(self, run: Run, file: Path) -> None:
        file.write_text('{"consents": [\n{"owner": "", "siteId": "x"}],\n"devices": {}}')

        result = run("projection", "check", file)

        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.splitlines() == [
            f"Error: {file}:2: consents[0].owner: must have 1 to 128 characters, not 0",
            f"Error: {file}:3: devices: must be a list, not an object",
            f"Error: {file}:2: consents[0].siteId: is the id of no site in this file",
        ]

    def test_show(self, run: Run, file: Path) -> None:
        rosters = [{"id": "team", "owner": "alice", "members": ["[red]bob", "carol"]}]
        file.write_text(json.dumps(fixture(rosters=rosters)))

        output = run("projection", "show", file).output

        rows = [
            [cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if "│" in line
        ]
        assert ["alice", "demo", "given"] in rows
        assert ["bob", "demo", "paused"] in rows
        assert ["team", "alice", "[red]bob, carol"] in rows
        assert ["laptop", "alice", "BYOLLM-SRDB-C2RJ-2NT5-434J-KAAS-PFT0", "approved"] in rows
