import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from relay_service.client.backends.base import RunLimits
from relay_service.client.daemon_config import (
    ConfigError,
    DaemonConfig,
    Limits,
    PromptLogConfig,
    ServiceConfig,
    load_daemon_config,
)
from relay_service.client.service_config import FixedCommand, HttpEndpoint

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors/relay.json").read_bytes())
SITE: dict[str, str] = VECTORS["public"]["site"]
SITE_ID: str = VECTORS["key_ids"]["site"]

MINIMAL = 'relay = "127.0.0.1:7443"\nrunner_id = "box"\n'
HTTP = """
[[services]]
service = "local"
backend = "llamacpp"
model = "small"
"""


def load(folder: Path, text: str, **options: object) -> DaemonConfig:
    path = folder / "daemon.toml"
    path.write_text(text)
    return load_daemon_config(path, options)


def error_of(folder: Path, text: str, **options: object) -> str:
    """The message, without the name of the file when it starts with that."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **options)
    return str(caught.value).removeprefix(f"{folder / 'daemon.toml'}: ")


def test_the_least_that_must_be_said(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)

    assert config == DaemonConfig(
        relay="127.0.0.1:7443",
        runner_id="box",
        owner=None,
        control_plane_key=None,
        keys=tmp_path / "keys.json",
        pins={},
        services=(),
        defaults={},
        slots=2,
        prompt_log=PromptLogConfig(tmp_path / "prompts.jsonl", max_bytes=10_485_760, keep=5),
        limits=Limits(
            own=RunLimits(max_output_bytes=4_194_304, wall_clock_seconds=600),
            others=RunLimits(max_output_bytes=262_144, wall_clock_seconds=120),
            others_per_hour=20,
            others_per_day=100,
            others_payload_characters=100_000,
        ),
    )


def test_all_that_can_be_said(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        f"""
        relay = "[::1]:7443"
        runner_id = "box"
        owner = "alice"
        control_plane_key = "bnoc3Smwt4_ROvTFWY_v9O8qlxZuPKby5Pv8zYBQW_E"
        keys = "/secure/keys.json"
        slots = 32
        [pins.{SITE_ID}]
        identity = "{SITE["identity"]}"
        encryption = "{SITE["encryption"]}"
        encryptionSig = "{SITE["encryptionSig"]}"
        [defaults]
        "llm.generate" = "script"
        [prompt_log]
        path = "logs/prompts"
        max_bytes = 1000
        keep = 0
        [limits.own]
        output_bytes = 1
        wall_clock_seconds = 2
        [limits.others]
        output_bytes = 3
        wall_clock_seconds = 4
        jobs_per_hour = 5
        jobs_per_day = 6
        payload_characters = 7
        [[services]]
        service = "gpu"
        kinds = ["llm.chat", "llm.generate"]
        backend = "openai-http"
        base_url = "http://127.0.0.1:8000/v1"
        model = "small"
        offer_scope = "team"
        api_key_file = "gpu.key"
        max_tokens = 100
        [[services]]
        service = "script"
        kind = "llm.generate"
        backend = "command"
        backend_id = "mlx"
        argv = ["./run", "--quiet"]
        model = "tiny"
        """,
    )

    assert (config.relay, config.keys, config.slots) == ("[::1]:7443", Path("/secure/keys.json"), 32)
    assert {key_id: identity.to_json() for key_id, identity in config.pins.items()} == {SITE_ID: SITE}
    assert config.defaults == {"llm.generate": "script"}
    assert config.prompt_log == PromptLogConfig(tmp_path / "logs/prompts", max_bytes=1000, keep=0)
    assert config.limits == Limits(RunLimits(1, 2), RunLimits(3, 4), 5, 6, 7)
    assert config.owner == "alice"
    assert config.control_plane_key == bytes.fromhex(
        "6e7a1cdd29b0b78fd13af4c5598feff4ef2a97166e3ca6f2e4fbfccd80505bf1"
    )
    assert config.services == (
        ServiceConfig(
            service="gpu",
            kinds=("llm.chat", "llm.generate"),
            backend_id="openai-http",
            model="small",
            offer_scope="team",
            endpoint=HttpEndpoint("http://127.0.0.1:8000", api_key_file=tmp_path / "gpu.key", max_tokens=100),
            cost="free",
        ),
        ServiceConfig(
            service="script",
            kinds=("llm.generate",),
            backend_id="mlx",
            model="tiny",
            offer_scope="private",
            endpoint=FixedCommand(("./run", "--quiet")),
            cost="free",
        ),
    )


def test_a_configuration_is_frozen(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.slots = 3  # type: ignore[misc]


def test_options_are_laid_over_the_file(tmp_path: Path) -> None:
    options: dict[str, object] = {
        "relay": "relay.test:443",
        "runner_id": None,
        "slots": 7,
        "prompt_log": {"enabled": False},
        "services": [{"service": "one", "backend": "command", "argv": ["cat"], "model": "none"}],
    }
    config = load(tmp_path, MINIMAL + "slots = 3\n" + HTTP, **options)

    assert (config.relay, config.runner_id, config.slots) == ("relay.test:443", "box", 7)
    assert config.prompt_log.path is None
    assert [service.service for service in config.services] == ["one"]


def test_options_alone_are_enough() -> None:
    config = load_daemon_config(None, {"relay": "unix:/run/relay.sock", "runner_id": "box"})

    assert config.relay == "unix:/run/relay.sock"
    assert config.keys == Path.home() / ".sealwork/keys.json"


def test_the_ceilings_of_services_bound_what_others_may_use(tmp_path: Path) -> None:
    paid = """
        [[services]]
        service = "paid"
        backend = "openai"
        base_url = "https://model.test"
        model = "m"
        offer_scope = "team"
        acknowledge_cost = true
        ceiling_characters_per_day = 50000
        """

    assert load(tmp_path, MINIMAL + HTTP + paid).limits.ceilings == {"paid": 50_000}


def test_a_control_plane_key_is_checked(tmp_path: Path) -> None:
    for text in ("bnoc", "b" * 44, "b" * 43 + "="):
        message = error_of(tmp_path, MINIMAL + f'control_plane_key = "{text}"')
        assert message == "control_plane_key: is not 32 bytes in unpadded base64url"
    key = "bnoc3Smwt4_ROvTFWY_v9O8qlxZuPKby5Pv8zYBQW_E"
    alone = error_of(tmp_path, MINIMAL + f'control_plane_key = "{key}"')
    assert alone.startswith("owner: is missing: ")


def test_an_option_at_fault_is_named_as_one(tmp_path: Path) -> None:
    assert error_of(tmp_path, MINIMAL, slots=33) == "command line: slots: 33 is not within 1 to 32"
    assert error_of(tmp_path, MINIMAL, slot=3) == "command line: slot: unknown key; is slots meant?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('runner_id = "box"', "relay: is missing"),
        ('relay = "127.0.0.1:7443"', "runner_id: is missing"),
        (MINIMAL + "slot = 3", "slot: unknown key; is slots meant?"),
        (MINIMAL + "[prompt_log]\npaht = 'x'", "prompt_log.paht: unknown key; is path meant?"),
        (MINIMAL + "[limits.others]\nhourly = 1", None),
        (MINIMAL + "[limits]\nmine = 1", "limits.mine: unknown key; known here: others, own"),
        (MINIMAL + HTTP + "modle = 'x'", "services[0].modle: unknown key; is model meant?"),
        (MINIMAL + "slots = 0", "slots: 0 is not within 1 to 32"),
        (MINIMAL + "slots = 33", "slots: 33 is not within 1 to 32"),
        (MINIMAL + "slots = '2'", "slots: must be a whole number, not text"),
        (MINIMAL + "slots = true", "slots: must be a whole number, not true or false"),
        (MINIMAL + "slots = 2.0", "slots: must be a whole number, not a number"),
        (MINIMAL + "keys = 3", "keys: must be text, not a whole number"),
        (MINIMAL + "keys = ' '", "keys: must not be blank"),
        (MINIMAL + "services = 3", "services: must be a list of tables, not a whole number"),
        (MINIMAL + "services = [3]", "services[0]: must be a table, not a whole number"),
        (MINIMAL + "limits = []", "limits: must be a table, not a list"),
        (
            MINIMAL + "[prompt_log]\nenabled = 1",
            "prompt_log.enabled: must be true or false, not a whole number",
        ),
        (
            MINIMAL + "[limits.own]\noutput_bytes = 4194305",
            "limits.own.output_bytes: 4194305 is not within 1 to 4194304",
        ),
        (
            'relay = "x:1"\nrunner_id = "a\\u0007b"',
            "runner_id: must be 1 to 128 characters, none of them a control character",
        ),
        (MINIMAL + HTTP + HTTP, "services[1].service: 'local' is the name of another service"),
        (
            MINIMAL + "[defaults]\n'llm.chat' = 'gone'",
            "defaults.llm.chat: no service named 'gone' has this kind",
        ),
        (
            MINIMAL + "[defaults]\n'llm.sing' = 'x'",
            "defaults.llm.sing: unknown key; known here: llm.chat, llm.generate",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(tmp_path: Path, text: str, message: str | None) -> None:
    error = error_of(tmp_path, text)
    if message is None:
        assert error.startswith("limits.others.hourly: unknown key; ")
    else:
        assert error == message


def test_messages_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, MINIMAL + "slot = 3")
    assert str(caught.value) == f"{tmp_path}/daemon.toml: slot: unknown key; is slots meant?"


@pytest.mark.parametrize(
    "relay", ["relay", "relay:", "relay:0", "relay:65536", "http://relay:1", ":1", "::1:7443", "a b:1"]
)
def test_relay_addresses_that_cannot_be_used(tmp_path: Path, relay: str) -> None:
    error = error_of(tmp_path, MINIMAL, relay=relay)
    assert error == f"command line: relay: {relay!r} is not host:port or unix:PATH"


@pytest.mark.parametrize("relay", ["relay.test:443", "127.0.0.1:1", "[::1]:65535", "unix:/run/relay.sock"])
def test_relay_addresses_that_can(tmp_path: Path, relay: str) -> None:
    assert load(tmp_path, MINIMAL, relay=relay).relay == relay


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/daemon.toml: No such file or directory"):
        load_daemon_config(tmp_path / "daemon.toml")


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    assert "line 2, column" in error_of(tmp_path, 'relay = "x:1"\nslots = = 3')
    path = tmp_path / "daemon.toml"
    path.write_bytes(b"relay = '\xff'")
    with pytest.raises(ConfigError, match="utf-8"):
        load_daemon_config(path)


def test_more_services_than_a_matrix_holds(tmp_path: Path) -> None:
    services = [
        {"service": f"s{number}", "backend": "command", "argv": ["cat"], "model": "none"}
        for number in range(33)
    ]
    error = error_of(tmp_path, MINIMAL, services=services)
    assert error == "command line: services: more than 64 pairs of service and kind"


def test_pins_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "pins.json").write_text(json.dumps({SITE_ID: SITE}))
    config = load(tmp_path, MINIMAL + 'pins = "pins.json"')
    assert {key_id: identity.to_json() for key_id, identity in config.pins.items()} == {SITE_ID: SITE}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON: "),
        ("[]", "must be an object of public identities by key id"),
        (json.dumps({"site": SITE}), "site: is not a key id"),
        (json.dumps({SITE_ID: {}}), f"{SITE_ID}: a public identity has exactly the keys"),
        (json.dumps({SITE_ID: {**SITE, "identity": "="}}), f"{SITE_ID}: "),
        (
            json.dumps({VECTORS["key_ids"]["site2"]: SITE}),
            f"{VECTORS['key_ids']['site2']}: the identity under it has the key id {SITE_ID}",
        ),
        (
            json.dumps({SITE_ID: {**SITE, "encryption": VECTORS["public"]["site2"]["encryption"]}}),
            f"{SITE_ID}: the identity has not signed its encryption key",
        ),
    ],
)
def test_pins_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "pins.json"
    path.write_text(content)
    error = error_of(tmp_path, MINIMAL + 'pins = "pins.json"')
    assert error.startswith(f"{path}: {message}")


def test_a_pin_file_that_is_not_there(tmp_path: Path) -> None:
    error = error_of(tmp_path, MINIMAL + 'pins = "pins.json"')
    assert error == f"pins: {tmp_path}/pins.json: No such file or directory"


def test_paths_start_at_the_file_or_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    config = load(tmp_path, MINIMAL + "keys = '~/keys.json'\n[prompt_log]\npath = '../log'")
    assert config.keys == Path("/home/ann/keys.json")
    assert config.prompt_log.path == tmp_path / "../log"


def test_the_documented_configuration_is_one(tmp_path: Path) -> None:
    document = (Path(__file__).parents[3] / "docs/devices.md").read_text()
    [example] = re.findall(r"```toml\n(.*?)```", document, re.DOTALL)
    config = load(tmp_path, MINIMAL + example)

    assert [service.service for service in config.services] == ["desk", "paid", "mine"]
    assert config.limits == Limits(ceilings={"paid": 200_000})
