"""Settings of the service and the commands that serve."""

import sys
import types
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from durable_service.cli import durable_service
from durable_service.config import FORM, DurableSettings, load_settings
from durable_service.principals_file import format_principals
from durable_service.stores import open_stores
from service_common.errors import SettingsError
from service_common.settings import flag_of
from tests.durable_service.durable_fixture import PRINCIPALS


@pytest.fixture
def principals(tmp_path: Path) -> Path:
    path = tmp_path / "principals.json"
    path.write_bytes(format_principals(PRINCIPALS))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(durable_service, [str(each) for each in arguments])


class TestSettings:
    def test_defaults(self, principals: Path) -> None:
        settings = load_settings({"principals": principals})

        assert (settings.listen, settings.store, settings.lease_ms) == ("127.0.0.1:7434", "memory:", 30_000)
        assert (settings.artifact_bytes, settings.retention_seconds) == (1_000_000, 604_800)

    @pytest.mark.parametrize(
        ("flags", "line"),
        [
            ({}, "no principals: give --principals FILE"),
            ({"principals": "p", "dev": True, "behind_mesh": True}, "--dev and --behind-mesh exclude"),
            ({"principals": "p", "listen": "0.0.0.0:1"}, "refusing to serve plaintext on 0.0.0.0:1"),
            ({"principals": "p", "dev": True, "listen": "0.0.0.0:1"}, "--dev serves loopback alone"),
            ({"principals": "p", "store": "mysql://x"}, "--store: 'mysql://x' is not supported"),
            ({"principals": "p", "blobs": "b"}, "--blobs is for a store that lasts"),
            ({"principals": "p", "purge": "soon"}, "--purge: 'soon' is not a duration: write a number with"),
            (
                {"principals": "p", "purge": "30d,failed=6d"},
                "--purge is sooner than --retention (168h) allows: lower --retention as well, or purge later",
            ),
            (
                {"principals": "p", "event_age_seconds": 0.5},
                "--event-age: must be greater than or equal to 1",
            ),
            ({"principals": "p", "events_per_task": 0}, "--events-per-task: must be greater than or equal"),
            ({"principals": "p", "liveness_seconds": 20}, "--liveness must be at least twice --heartbeat"),
            (
                {"principals": "p", "artifact_bytes": 8_000_001},
                "--artifact-bytes: must be less than",
            ),
            ({"principals": "p", "tls_key": "k"}, "--tls-certificate and --tls-key go together"),
            ({"principals": "p", "tls_client_ca": "c"}, "--tls-client-ca is for a TLS listener"),
            ({"principals": "p", "lease_ms": 5}, "--lease: must be greater than or equal to 10 milliseconds"),
        ],
    )
    def test_what_is_refused(self, flags: dict[str, object], line: str) -> None:
        with pytest.raises(SettingsError) as raised:
            load_settings(flags)

        assert str(raised.value).startswith(line)

    def test_behind_a_mesh(self) -> None:
        assert load_settings({"principals": "p", "behind_mesh": True, "listen": "0.0.0.0:1"}).behind_mesh

    def test_with_a_certificate_off_loopback(self) -> None:
        flags = {"principals": "p", "listen": "0.0.0.0:1", "tls_certificate": "c", "tls_key": "k"}

        assert load_settings(flags).tls_key == Path("k")

    def test_an_unknown_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DURABLE_STORES", "memory:")

        with pytest.raises(SettingsError, match="DURABLE_STORES: is not a setting of the durable service"):
            load_settings({"principals": "p"})

    def test_what_kubernetes_sets_is_none_of_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DURABLE_SERVICE_HOST", "10.0.0.1")
        monkeypatch.setenv("DURABLE_PORT", "tcp://10.0.0.1:7434")

        assert load_settings({"principals": "p"}).store == "memory:"


class TestStores:
    async def test_a_file_and_its_folder(self, tmp_path: Path) -> None:
        file = tmp_path / "tasks.db"
        async with open_stores(f"sqlite:///{file}") as stores:
            assert stores.tasks.capabilities.durable
            assert stores.blobs.durable
        assert file.exists()
        assert (tmp_path / "tasks.db.blobs").is_dir()

    async def test_memory_says_that_it_forgets(self) -> None:
        async with open_stores("memory:") as stores:
            assert not stores.tasks.capabilities.durable

    async def test_a_file_that_is_no_store(self, tmp_path: Path) -> None:
        file = tmp_path / "tasks.db"
        file.write_bytes(b"something else" * 1_000)

        with pytest.raises(SettingsError, match="--store sqlite:///"):
            async with open_stores(f"sqlite:///{file}"):
                pass


class TestCommands:
    @pytest.fixture
    def served(self, monkeypatch: pytest.MonkeyPatch) -> list[DurableSettings]:
        served: list[DurableSettings] = []

        def serve(settings: DurableSettings) -> int:
            served.append(settings)
            if settings.server_instance == "unlucky":
                raise SettingsError("cannot listen on 127.0.0.1:7434: the port is taken")
            return 3

        process = types.ModuleType("durable_service.process")
        process.run = serve  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "durable_service.process", process)
        return served

    def test_flags_become_settings(self, served: list[DurableSettings], principals: Path) -> None:
        result = run(
            "serve", "--dev", "--store", "sqlite:///x.db", "--principals", principals, "--lease", "90s"
        )

        assert result.exit_code == 3
        assert [(each.dev, each.store, each.lease_ms) for each in served] == [
            (True, "sqlite:///x.db", 90_000)
        ]

    def test_what_does_not_start(self, served: list[DurableSettings], principals: Path) -> None:
        refused = run("serve")
        unlucky = run("serve", "--principals", principals, "--server-instance", "unlucky")

        assert (refused.exit_code, unlucky.exit_code) == (2, 2)
        assert refused.stderr.startswith("Error: no principals")
        assert unlucky.stderr == "Error: cannot listen on 127.0.0.1:7434: the port is taken\n"

    def test_check_config(self, principals: Path) -> None:
        result = run("check-config", "--principals", principals)
        principals.write_text("{}", encoding="utf-8")
        broken = run("check-config", "--principals", principals)

        assert result.exit_code == 0
        assert "DURABLE_STORE=memory:" in result.output
        assert broken.exit_code == 2

    def test_there_is_an_option_for_every_setting(self) -> None:
        output = " ".join(run("serve", "--help").output.split())

        for field in DurableSettings.model_fields:
            assert f"{flag_of(field)} " in output
            assert f"[{FORM.variable_of(field)}" in output

    def test_help_of_every_command(self) -> None:
        def walk(command: click.Command, path: tuple[str, ...]) -> None:
            result = run(*path, "--help")
            assert result.exit_code == 0, path
            if path != ("version",):
                assert "Exit status" in result.output, path
            if isinstance(command, click.Group):
                context = click.Context(command)
                for name in command.list_commands(context):
                    found = command.get_command(context, name)
                    assert found is not None
                    walk(found, (*path, name))

        walk(durable_service, ())

    def test_the_version(self) -> None:
        assert run("version").output.startswith("sealwork")
