import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from relay_service.config import RelaySettings, describe_settings, load_settings
from service_common.errors import SettingsError
from tests.relay_service.projection_documents import made_identity

NO_PROJECTION = (
    "no projection: give --projection FILE (relay-service init FOLDER makes one), or a store that "
    "keeps one (embedded:DIR, valkey://HOST:PORT/DB), or --dev to begin with nothing"
)
UNPROTECTED = (
    "refusing to serve plaintext on 0.0.0.0:7433: give a certificate and a key, or say --behind-mesh when "
    "a sidecar terminates TLS, or listen on 127.0.0.1, [::1] or unix:PATH"
)
NOT_LOOPBACK = (
    "--dev serves loopback alone, not {}: listen on 127.0.0.1, [::1] or unix:PATH, or leave out --dev and "
    "give a certificate and a key"
)


def faults(**flags: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    return str(caught.value).splitlines()


def test_defaults() -> None:
    settings = load_settings({"dev": True})

    assert describe_settings(settings) == {
        "RELAY_LISTEN": "127.0.0.1:7433",
        "RELAY_DEV": "true",
        "RELAY_BEHIND_MESH": "false",
        "RELAY_STORE": "memory:",
        "RELAY_PROJECTION": "",
        "RELAY_POLICY": "",
        "RELAY_POLICY_CA": "",
        "RELAY_OPERATOR_IDENTITY": "",
        "RELAY_LEASE_MS": "60000",
        "RELAY_HEARTBEAT_SECONDS": "15",
        "RELAY_LIVENESS_SECONDS": "45",
        "RELAY_STREAM_AGE_SECONDS": "1800",
        "RELAY_DRAIN_GRACE_SECONDS": "30",
        "RELAY_TLS_CERTIFICATE": "",
        "RELAY_TLS_KEY": "",
        "RELAY_TLS_CLIENT_CA": "",
        "RELAY_METRICS_LISTEN": "",
        "RELAY_ADMIN_LISTEN": "",
        "RELAY_SERVER_INSTANCE": "",
        "RELAY_DAEMON_FLOOR": "",
        "RELAY_OFFERED_VERSION": "",
        "RELAY_LOG_FORMAT": "auto",
        "RELAY_LOG_LEVEL": "info",
        "RELAY_MAX_SESSIONS_PER_SITE": "16",
        "RELAY_PAIRING": "true",
        "RELAY_VERIFICATION_URL": "",
        "RELAY_CONTROL_PLANE_KEY": "",
        "RELAY_PAIRING_STARTS_PER_MINUTE": "10",
        "RELAY_WANTED_DAEMONS": "1000",
    }
    assert settings.projection is None


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RELAY_PROJECTION": "/etc/relay/projection.json",
        "RELAY_LEASE_MS": "5000",
        "RELAY_HEARTBEAT_SECONDS": "0.5",
        "RELAY_LOG_LEVEL": "DEBUG",
        "RELAY_BEHIND_MESH": "yes",
        "RELAY_LISTEN": "0.0.0.0:443",
        "RELAY_OFFERED_VERSION": "1.4.0-rc.1",
        "RELAY_ADMIN_LISTEN": "",
    }.items():
        monkeypatch.setenv(name, value)

    settings = load_settings()

    assert settings.projection == Path("/etc/relay/projection.json")
    assert (settings.lease_ms, settings.heartbeat_seconds) == (5000, 0.5)
    assert (settings.log_level, settings.behind_mesh, settings.listen) == ("debug", True, "0.0.0.0:443")
    assert (settings.offered_version, settings.admin_listen) == ("1.4.0-rc.1", "")


def test_a_flag_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_LEASE_MS", "5000")
    monkeypatch.setenv("RELAY_DEV", "true")

    assert load_settings({"lease_ms": 7000, "dev": None}).lease_ms == 7000
    assert faults(dev=False) == [NO_PROJECTION]


def test_settings_do_not_change() -> None:
    settings = load_settings({"dev": True})

    with pytest.raises(ValidationError):
        settings.lease_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("RELAY_LEASE", "RELAY_LEASE: is not a setting of the relay; did you mean RELAY_LEASE_MS?"),
        ("RELAY_LISTN", "RELAY_LISTN: is not a setting of the relay; did you mean RELAY_LISTEN?"),
        ("relay_listn", "relay_listn: is not a setting of the relay; did you mean RELAY_LISTEN?"),
        (
            "RELAY_QQ",
            "RELAY_QQ: is not a setting of the relay; relay-service check-config --help lists them",
        ),
        # It looks like one of Kubernetes, but its value does not.
        (
            "RELAY_ADMIN_PORT",
            "RELAY_ADMIN_PORT: is not a setting of the relay; did you mean RELAY_ADMIN_LISTEN?",
        ),
    ],
)
def test_a_variable_that_is_no_setting(name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "9")

    assert faults(dev=True) == [fault]


def test_variables_of_kubernetes_about_a_service_named_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RELAY_SERVICE_HOST": "10.0.0.7",
        "RELAY_SERVICE_PORT": "7433",
        "RELAY_SERVICE_PORT_GRPC": "7433",
        "RELAY_PORT": "tcp://10.0.0.7:7433",
        "RELAY_PORT_7433_TCP": "tcp://10.0.0.7:7433",
        "RELAY_PORT_7433_TCP_ADDR": "10.0.0.7",
        "RELAY_PORT_7433_TCP_PORT": "7433",
        "RELAY_PORT_7433_TCP_PROTO": "tcp",
        "RELAY_ADMIN_SERVICE_HOST": "10.0.0.8",
        "RELAY_ADMIN_PORT": "tcp://10.0.0.8:80",
    }.items():
        monkeypatch.setenv(name, value)

    assert load_settings({"dev": True}).listen == "127.0.0.1:7433"


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("RELAY_LEASE_MS", "999", "must be greater than or equal to 1000 milliseconds"),
        ("RELAY_LEASE_MS", "600001", "must be less than or equal to 600000 milliseconds"),
        ("RELAY_LEASE_MS", "60s", "must be a valid integer, unable to parse string as an integer"),
        ("RELAY_HEARTBEAT_SECONDS", "0", "must be greater than or equal to 0.1 seconds"),
        ("RELAY_HEARTBEAT_SECONDS", "nan", "must be a finite number"),
        (
            "RELAY_STORE",
            "redis:memory",
            (
                "'redis:memory' is not supported; supported: memory:, embedded:DIR, valkey://HOST:PORT/DB, "
                "valkeys://HOST:PORT/DB, unix://PATH"
            ),
        ),
        ("RELAY_DAEMON_FLOOR", "1.4", "'1.4' is not a version such as 1.4.0"),
        ("RELAY_LOG_FORMAT", "xml", "must be 'auto', 'json' or 'pretty'"),
        ("RELAY_METRICS_LISTEN", "unix:/run/m", "metrics are served over TCP alone: write HOST:PORT"),
        (
            "RELAY_METRICS_LISTEN",
            "9433",
            "'9433' is no address to listen on: write HOST:PORT, [IPV6]:PORT or unix:PATH",
        ),
        ("RELAY_SERVER_INSTANCE", "a b", "must be at most 128 printable ASCII characters without spaces"),
        ("RELAY_MAX_SESSIONS_PER_SITE", "0", "must be greater than or equal to 1"),
    ],
)
def test_a_value_that_does_not_fit(
    variable: str, value: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)

    assert faults(dev=True) == [f"{variable}: {fault}"]


def test_a_value_of_a_flag_is_complained_about_by_the_flag() -> None:
    assert faults(dev=True, lease_ms=5) == ["--lease: must be greater than or equal to 1000 milliseconds"]


def test_the_operators_variable_of_the_commands_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_OPERATOR_KEY", "relay/operator-keys.json")

    assert load_settings({"dev": True}).operator_identity is None


def test_a_folder_of_operators_has_a_name_for_each(tmp_path: Path) -> None:
    from relay_service.process import _operators

    with pytest.raises(SettingsError, match=r"has no NAME\.json with the public identity of an operator"):
        _operators(load_settings({"dev": True, "operator_identity": tmp_path}))
    for name, number in (("olga", 1), ("erin", 2)):
        (tmp_path / f"{name}.json").write_text(json.dumps(made_identity(number).to_json()))

    operators = _operators(load_settings({"dev": True, "operator_identity": tmp_path}))

    assert operators == {"erin": made_identity(2), "olga": made_identity(1)}


def test_everything_that_is_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_LISTN", "x")
    monkeypatch.setenv("RELAY_LEASE_MS", "x")

    assert [fault.partition(":")[0] for fault in faults(dev=True, wanted_daemons=0)] == [
        "RELAY_LISTN",
        "RELAY_LEASE_MS",
        "--wanted-daemons",
    ]


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ({"listen": "0.0.0.0:7433", "projection": Path("p")}, UNPROTECTED),
        ({"listen": "0.0.0.0:7433", "dev": True}, NOT_LOOPBACK.format("0.0.0.0:7433")),
        ({"admin_listen": "0.0.0.0:1", "dev": True}, NOT_LOOPBACK.format("0.0.0.0:1")),
        (
            {"dev": True, "behind_mesh": True},
            "--dev and --behind-mesh exclude each other: development is loopback only",
        ),
        (
            {"dev": True, "heartbeat_seconds": 30.0},
            "--liveness must be at least twice --heartbeat, or one late beat ends a stream",
        ),
    ],
)
def test_settings_that_do_not_go_together(flags: dict[str, object], fault: str) -> None:
    assert faults(**flags) == [fault]


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:7433", "localhost:7433", "unix:/run/relay.sock"])
def test_addresses_for_development(listen: str) -> None:
    assert load_settings({"dev": True, "listen": listen}).listen == listen


def test_a_relay_behind_a_mesh() -> None:
    settings = RelaySettings(behind_mesh=True, listen="0.0.0.0:7433", projection=Path("p.json"))

    assert settings.listen == "0.0.0.0:7433"


@pytest.mark.parametrize("page", ["relay.example/pair", "ftp://relay.example", "https://", "https://a b"])
def test_a_page_to_approve_on_is_one_of_the_web(page: str) -> None:
    (fault,) = faults(dev=True, verification_url=page)
    assert fault == "--verification-url: must begin with https:// or http:// and have no spaces"


def test_a_page_to_approve_on() -> None:
    assert load_settings({"dev": True, "verification_url": "https://relay.example/pair"}).verification_url
