"""The principals file: what is refused, what is watched, what the command writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from durable_service.cli import durable_service
from durable_service.core.definition import Driver
from durable_service.principals import Principal, Principals, Role
from durable_service.principals_file import (
    PrincipalsError,
    encode_key,
    format_principals,
    load_principals,
    parse_principals,
)
from durable_service.principals_source import FilePrincipals
from service_common.clocks import ManualClock
from service_common.metrics import Metrics
from tests.durable_service.durable_fixture import PRINCIPALS, principal, signer_of

KEY = encode_key(signer_of("alice").public_key)
GOOD: dict[str, Any] = {"id": "a", "tenant": "t", "actor": "x", "roles": ["submitter"], "key": KEY}


def parsed(*rows: Any) -> Principals:
    return parse_principals(json.dumps({"principals": rows}).encode(), "file")


def write(path: Path, content: bytes | None) -> None:
    """Puts a file there, or takes it away."""
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)


class TestReading:
    def test_there_and_back(self) -> None:
        assert parse_principals(format_principals(PRINCIPALS)) == PRINCIPALS

    def test_a_certificate_in_place_of_a_key(self) -> None:
        row = {**GOOD, "key": None, "spiffe_id": "spiffe://example.org/ns/demo/worker"}

        found = parsed(row).of_certificate("spiffe://example.org/ns/demo/worker")
        assert found is not None
        assert (found.id, found.key) == ("a", None)

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"id": "a/b"}, "principals[0].id: must be 1 to 128 of the characters A-Z a-z 0-9 . _ @ : + -"),
            ({"tenant": ""}, "principals[0].tenant: must not be empty or white space alone"),
            ({"actor": 7}, "principals[0].actor: must be a string"),
            ({"roles": []}, "principals[0].roles: must name at least one of"),
            ({"roles": ["king"]}, "principals[0].roles: 'king' is not one of submitter, worker"),
            ({"key": "short"}, "principals[0].key: must be an Ed25519 public key"),
            ({"key": None}, "principals[0]: needs a credential: key or spiffe_id"),
            ({"spiffe_id": "https://x"}, "principals[0].spiffe_id: must be a SPIFFE id"),
            ({"disabled": "no"}, "principals[0].disabled: must be true or false"),
            ({"tenants": []}, "principals[0].tenants: is not a member of a principal"),
            ({"roles": ["worker"]}, "principals[0].drivers: is missing"),
            ({"drivers": ["mail"]}, "principals[0].drivers: is for workers alone"),
            (
                {"roles": ["worker", "approver"], "drivers": ["*"]},
                "principals[0].roles: cannot be worker and approver: a worker never decides an approval",
            ),
        ],
    )
    def test_what_is_refused(self, change: dict[str, Any], problem: str) -> None:
        with pytest.raises(PrincipalsError) as raised:
            parsed({**GOOD, **change})

        assert str(raised.value).startswith(f"file: {problem}")

    def test_every_problem_is_told(self) -> None:
        with pytest.raises(PrincipalsError) as raised:
            parsed({**GOOD, "tenant": ""}, "no object", {**GOOD, "id": ""})

        assert len(str(raised.value).splitlines()) == 3

    def test_a_credential_has_one_owner(self) -> None:
        with pytest.raises(PrincipalsError, match="is the credential of principals"):
            parsed(GOOD, {**GOOD, "id": "b"})

    def test_an_id_is_used_once(self) -> None:
        other = encode_key(signer_of("bob").public_key)
        with pytest.raises(PrincipalsError, match="is the id of principals"):
            parsed(GOOD, {**GOOD, "key": other})

    @pytest.mark.parametrize(
        "content", [b"", b"[]", b"{}", b'{"principals": {}}', b'{"principals": [], "x": 1}']
    )
    def test_what_is_no_list_of_principals(self, content: bytes) -> None:
        with pytest.raises(PrincipalsError):
            parse_principals(content)


class TestDrivers:
    def test_what_a_worker_executes(self) -> None:
        worker = principal("w", Role.WORKER, drivers="mail post@2")

        assert worker.executes(Driver("mail", 1))
        assert worker.executes(Driver("mail", 9))
        assert worker.executes(Driver("post", 2))
        assert not worker.executes(Driver("post", 1))
        assert not worker.executes(None)
        assert principal("w", Role.WORKER, drivers="*").executes(None)
        assert not principal("s", Role.SUBMITTER).executes(Driver("mail", 1))


class TestWatching:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "principals.json"
        path.write_bytes(format_principals(PRINCIPALS))
        return path

    async def test_an_edit_is_in_force_and_told(self, path: Path) -> None:
        source = FilePrincipals(path, ManualClock())
        heard: list[tuple[Principals, Principals]] = []
        source.listen(lambda old, new: heard.append((old, new)))
        fewer = Principals.of([PRINCIPALS.by_id["alice"]])
        write(path, format_principals(fewer))
        await source.poll()

        assert source.current == fewer
        assert heard == [(PRINCIPALS, fewer)]

    async def test_a_broken_file_keeps_the_last_good_one(self, path: Path) -> None:
        metrics = Metrics()
        source = FilePrincipals(path, ManualClock(), metrics=metrics)
        seen = []
        for content in (b"{", None, format_principals(PRINCIPALS)):
            write(path, content)
            await source.poll()
            seen.append((source.current, metrics.value("durable_principals_broken")))

        assert seen == [(PRINCIPALS, 1), (PRINCIPALS, 1), (PRINCIPALS, 0)]
        assert source.problem is None

    async def test_without_a_usable_file_nothing_begins(self, tmp_path: Path) -> None:
        with pytest.raises(PrincipalsError, match="cannot be read"):
            FilePrincipals(tmp_path / "none.json", ManualClock())

    async def test_a_listener_that_fails_keeps_nobody_from_hearing(self, path: Path) -> None:
        source = FilePrincipals(path, ManualClock())
        heard: list[Principals] = []

        def fail(_old: Principals, _new: Principals) -> None:
            raise RuntimeError

        source.listen(fail)
        source.listen(lambda _, new: heard.append(new))
        source.replace(Principals())

        assert heard == [Principals()]


class TestCommand:
    def run(self, path: Path, *arguments: str) -> Result:
        return CliRunner().invoke(durable_service, ["principals", "--file", str(path), *arguments])

    def add(self, path: Path, name: str = "alice", *more: str) -> Result:
        return self.run(
            path, "add", name, "--tenant", "acme", *(more or ("--role", "submitter", "--key", KEY))
        )

    def test_adding_makes_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "principals.json"

        assert self.add(path).exit_code == 0
        assert load_principals(path).get("alice") == Principal(
            "alice", "acme", "alice", frozenset({Role.SUBMITTER}), signer_of("alice").public_key
        )
        assert path.stat().st_mode & 0o777 == 0o600

    def test_disable_enable_remove(self, tmp_path: Path) -> None:
        path = tmp_path / "principals.json"
        self.add(path)
        states = []
        for command in ("disable", "enable"):
            assert self.run(path, command, "alice").exit_code == 0
            alice = load_principals(path).get("alice")
            states.append(alice is not None and alice.disabled)
        assert self.run(path, "remove", "alice").exit_code == 0

        assert states == [True, False]
        assert load_principals(path) == Principals()

    def test_what_the_service_would_refuse_is_not_written(self, tmp_path: Path) -> None:
        path = tmp_path / "principals.json"
        self.add(path)
        before = path.read_bytes()
        other = encode_key(signer_of("bob").public_key)
        roles = ("--role", "worker", "--role", "approver", "--driver", "*", "--key", other)
        result = self.add(path, "bob", *roles)

        assert result.exit_code == 1
        assert "a worker never decides an approval" in result.stderr
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        ("arguments", "status", "text"),
        [
            (
                ("add", "alice", "--tenant", "acme", "--role", "submitter", "--key", KEY),
                1,
                "is there already",
            ),
            (("remove", "bob"), 1, "there is no such principal"),
            (("add", "bob", "--tenant", "acme", "--role", "submitter", "--key", "x"), 2, "--key"),
        ],
    )
    def test_refusals(self, tmp_path: Path, arguments: tuple[str, ...], status: int, text: str) -> None:
        path = tmp_path / "principals.json"
        self.add(path)
        result = self.run(path, *arguments)

        assert (result.exit_code, text in result.stderr) == (status, True)

    def test_the_list(self, tmp_path: Path) -> None:
        path = tmp_path / "principals.json"
        self.add(path)

        assert "alice" in self.run(path, "list").output
        (line,) = self.run(path, "list", "--json").output.splitlines()
        assert json.loads(line)["key"] == KEY

    def test_a_file_that_is_broken(self, tmp_path: Path) -> None:
        path = tmp_path / "principals.json"
        path.write_text("{}", encoding="utf-8")
        result = self.add(path)

        assert result.exit_code == 1
        assert 'one member "principals"' in result.stderr
