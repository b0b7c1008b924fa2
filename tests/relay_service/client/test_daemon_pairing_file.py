"""What a pairing has brought, in its file, and what a daemon takes from there."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from relay_service.client.config_table import ConfigError
from relay_service.client.daemon_config import DaemonConfig, load_daemon_config
from relay_service.client.daemon_pairing import PairedDevice
from relay_service.client.daemon_pairing_file import Transport, load_pairing, pairing_path, save_pairing
from tests.relay_service.client.commands import daemon, identity_file, key_file
from tests.relay_service.client.real_relay import DEVICE_KEYS, SITE_KEYS, STRANGER_KEYS

PAIRED = PairedDevice("desk-1", "alice", {SITE_KEYS.key_id: SITE_KEYS.public}, bytes(range(32)))
KEY_TEXT = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
BACKEND = ("--backend", "command", "--", "true")


def paired(folder: Path, device: PairedDevice = PAIRED, transport: Transport | None = None) -> Path:
    """A key file with a pairing beside it; the relay is one that nobody runs."""
    keys = Path(key_file(folder, DEVICE_KEYS))
    save_pairing(keys, DEVICE_KEYS.key_id, "127.0.0.1:9", transport or Transport(), device)
    return keys


def configured(keys: Path, **options: Any) -> DaemonConfig:
    return load_daemon_config(None, {"keys": str(keys), **options})


def test_the_file_lies_beside_the_keys_for_the_owner_alone(tmp_path: Path) -> None:
    keys = paired(tmp_path)
    path = tmp_path / "keys.pairing.json"
    assert pairing_path(keys) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {
        "version": 1,
        "key_id": DEVICE_KEYS.key_id,
        "relay": "127.0.0.1:9",
        "tls": False,
        "tls_ca": None,
        "plaintext": False,
        "runner_id": "desk-1",
        "owner": "alice",
        "control_plane_key": KEY_TEXT,
        "pins": {SITE_KEYS.key_id: SITE_KEYS.public.to_json()},
    }


def test_a_later_pairing_takes_its_place_for_the_owner_alone(tmp_path: Path) -> None:
    keys = paired(tmp_path)
    pairing_path(keys).chmod(0o644)
    save_pairing(keys, DEVICE_KEYS.key_id, "relay:1", Transport(), PairedDevice("desk-2", "bob", {}, None))
    assert stat.S_IMODE(pairing_path(keys).stat().st_mode) == 0o600
    kept = load_pairing(keys)
    assert kept is not None
    assert kept.settings == {"relay": "relay:1", "runner_id": "desk-2", "owner": "bob", "pins": {}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys.json", "keys.pairing.json"]


def test_keys_that_were_never_paired_have_none(tmp_path: Path) -> None:
    assert load_pairing(tmp_path / "keys.json") is None


def test_how_the_relay_is_reached_is_kept(tmp_path: Path) -> None:
    transport = Transport(tls=True, tls_ca=tmp_path / "ca.pem", plaintext=False)
    kept = load_pairing(paired(tmp_path, transport=transport))
    assert kept is not None
    assert kept.transport == transport


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2}', '{"version": 1}'])
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    keys = paired(tmp_path)
    pairing_path(keys).write_text(content)
    with pytest.raises(ConfigError, match=r"keys\.pairing\.json"):
        load_pairing(keys)


def test_a_daemon_needs_nothing_but_its_pairing(tmp_path: Path) -> None:
    config = configured(paired(tmp_path))
    assert (config.relay, config.runner_id, config.owner) == ("127.0.0.1:9", "desk-1", "alice")
    assert config.pins == {SITE_KEYS.key_id: SITE_KEYS.public}
    assert config.control_plane_key == bytes(range(32))


def test_what_it_is_told_goes_before_its_pairing(tmp_path: Path) -> None:
    pins = {STRANGER_KEYS.key_id: STRANGER_KEYS.public.to_json()}
    config = configured(paired(tmp_path), relay="relay:2", owner="bob", pins=pins)
    assert (config.relay, config.runner_id, config.owner) == ("relay:2", "desk-1", "bob")
    assert list(config.pins) == [STRANGER_KEYS.key_id]


def test_the_pairing_of_another_device_says_nothing(tmp_path: Path) -> None:
    config = configured(paired(tmp_path), runner_id="other", relay="relay:2")
    assert (config.runner_id, config.owner, config.pins) == ("other", None, {})


def test_a_configuration_file_goes_before_the_pairing_too(tmp_path: Path) -> None:
    paired(tmp_path)
    path = tmp_path / "daemon.toml"
    path.write_text('relay = "relay:2"\n')
    config = load_daemon_config(path)
    assert (config.relay, config.runner_id) == ("relay:2", "desk-1")


def test_a_configuration_without_keys_beside_it_means_the_device_that_was_paired_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / ".sealwork").mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    keys = paired(home / ".sealwork")
    path = elsewhere / "daemon.toml"
    path.write_text("slots = 1\n")
    config = load_daemon_config(path)
    assert (config.keys, config.runner_id, config.relay) == (keys, "desk-1", "127.0.0.1:9")

    path.write_text('runner_id = "desk-1"\nrelay = "relay:2"\n')
    assert load_daemon_config(path).keys == elsewhere / "keys.json"
    path.write_text("slots = 1\n")
    paired(elsewhere)
    assert load_daemon_config(path).keys == elsewhere / "keys.json"


def test_a_pin_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    keys = paired(tmp_path)
    path = pairing_path(keys)
    document = json.loads(path.read_text())
    document["pins"][SITE_KEYS.key_id] = STRANGER_KEYS.public.to_json()
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="the identity under it has the key id"):
        configured(keys)


def test_status_goes_by_the_pairing(tmp_path: Path) -> None:
    shown = daemon("status", "--keys", str(paired(tmp_path)), "--runner-id", "desk-1", "--relay", "no.relay")
    assert "relay" in shown.stderr
    shown = daemon("run", "--keys", str(paired_without_sites(tmp_path / "other")), *BACKEND)
    assert shown.exit_code == 2
    assert "pair again when the owner consents to one" in " ".join(shown.stderr.split())


def test_another_machine_is_reached_as_it_was_paired(tmp_path: Path) -> None:
    keys = Path(key_file(tmp_path, DEVICE_KEYS))
    save_pairing(keys, DEVICE_KEYS.key_id, "relay.example:1", Transport(), PAIRED)
    shown = daemon("status", "--keys", str(keys), *BACKEND)
    assert shown.exit_code == 2
    assert "relay.example:1 is another machine: add --tls" in shown.stderr


def test_without_a_pairing_the_way_to_one_is_told(tmp_path: Path) -> None:
    shown = daemon("run", "--keys", key_file(tmp_path, DEVICE_KEYS), *BACKEND)
    assert shown.exit_code == 2
    assert "or pair it: relay-daemon pair" in shown.stderr


@pytest.mark.parametrize("command", ["run", "status"])
def test_other_keys_than_those_that_were_paired_are_refused(tmp_path: Path, command: str) -> None:
    keys = paired(tmp_path)
    keys.unlink()
    STRANGER_KEYS.save(keys)
    shown = daemon(command, "--keys", str(keys), *BACKEND)
    assert shown.exit_code == 2
    assert "has other keys than those that were paired; pair again: relay-daemon pair" in shown.stderr


def paired_without_sites(folder: Path) -> Path:
    folder.mkdir()
    return paired(folder, PairedDevice("desk-1", "alice", {}, None))


def test_a_given_pin_takes_the_place_of_the_paired_ones(tmp_path: Path) -> None:
    keys = paired_without_sites(tmp_path / "bare")
    pin = identity_file(tmp_path, SITE_KEYS, "site.json")
    shown = daemon("status", "--keys", str(keys), "--site-pin", pin, "--tls", "--plaintext")
    assert "--plaintext cannot be given together with --tls" in shown.stderr
