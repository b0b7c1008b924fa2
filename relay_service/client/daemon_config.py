"""The daemon's configuration: a TOML file, and options of the command line over it."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relay_service.client import prompt_log
from relay_service.client.backends.base import KINDS, RunLimits
from relay_service.client.config_table import ConfigError, ConfigTable
from relay_service.client.daemon_pairing_file import load_pairing
from relay_service.client.service_config import NAME_CHARACTERS, ServiceConfig, read_name, read_service
from relay_service.core.identity import (
    PUBLIC_KEY_BYTES,
    PublicIdentity,
    decode_base64url,
    is_key_id,
    verify_binding,
)

__all__ = ["ConfigError", "DaemonConfig", "Limits", "PromptLogConfig", "ServiceConfig", "load_daemon_config"]

DEFAULT_FOLDER = Path("~/.sealwork")
DEFAULT_SLOTS = 2
MAX_SLOTS = 32
MATRIX_ROWS = 64

OWN_LIMITS = RunLimits(max_output_bytes=4_194_304, wall_clock_seconds=600)
OTHERS_LIMITS = RunLimits(max_output_bytes=262_144, wall_clock_seconds=120)
OTHERS_PER_HOUR = 20
OTHERS_PER_DAY = 100
OTHERS_PAYLOAD_CHARACTERS = 100_000

_MAX_SECONDS = 86_400
_MAX_OUTPUT_BYTES = 4_194_304
_MAX_PAYLOAD_CHARACTERS = 4_000_000
_MAX_LOG_BYTES = 1_099_511_627_776
_TARGET = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Limits:
    """What work may cost this machine.

    Attributes:
        own: Bounds on a run of the owner's own work.
        others: Bounds on a run of other people's work.
        others_per_hour: Jobs of other people begun within any hour.
        others_per_day: The same within any 24 hours.
        others_payload_characters: Bound on the text of one of their payloads.
        ceilings: By service that costs money, what all of their work may use of it within any 24 hours:
            characters of payloads and answers together. Without one it is its owner's alone.
    """

    own: RunLimits = OWN_LIMITS
    others: RunLimits = OTHERS_LIMITS
    others_per_hour: int = OTHERS_PER_HOUR
    others_per_day: int = OTHERS_PER_DAY
    others_payload_characters: int = OTHERS_PAYLOAD_CHARACTERS
    ceilings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PromptLogConfig:
    """Where prompts are logged; `path` None turns the log off."""

    path: Path | None
    max_bytes: int = prompt_log.MAX_BYTES
    keep: int = prompt_log.KEEP


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """All that a daemon is told.

    Attributes:
        relay: The relay's address, `host:port` or `unix:PATH`.
        runner_id: This device's id at the relay.
        owner: The person whose device this is, as the relay names them; None when not told.
        control_plane_key: Raw Ed25519 key whose grants this device asks for; None when there is none.
        keys: The device's key file.
        pins: The sites it serves, by key id. A payload is verified against nothing else.
        services: What can run here.
        defaults: For a kind that several services can run, the one that does.
        slots: Jobs at a time.
        prompt_log: Where prompts are logged.
        limits: What work may cost.
    """

    relay: str
    runner_id: str
    owner: str | None
    control_plane_key: bytes | None
    keys: Path
    pins: Mapping[str, PublicIdentity]
    services: tuple[ServiceConfig, ...]
    defaults: Mapping[str, str]
    slots: int
    prompt_log: PromptLogConfig
    limits: Limits


def load_daemon_config(path: Path | None, options: Mapping[str, object] | None = None) -> DaemonConfig:
    """Read the file and lay the options over it.

    Args:
        path: The TOML file, or None to go by the options alone. Paths in it start at its folder.
        options: Values under the file's own top-level keys; None stands for an option not given.

    What neither says, the pairing of the device's keys does.

    Raises:
        ConfigError: The file cannot be read or something in it cannot be used.
    """
    folder = DEFAULT_FOLDER.expanduser() if path is None else path.absolute().parent
    told = {} if path is None else _read_toml(path)
    given = {key: value for key, value in (options or {}).items() if value is not None}
    usual_keys = _usual_keys({**told, **given}, folder)
    paired = _read_pairing({**told, **given}, folder, usual_keys)
    file = ConfigTable("configuration" if path is None else str(path), {**paired, **told})
    config = _read(file, ConfigTable("command line", given), folder, usual_keys)
    file.finish()
    return config


def _read(file: ConfigTable, options: ConfigTable, folder: Path, usual_keys: Path) -> DaemonConfig:
    services = _read_services(file.under(options, "services"), folder)
    config = DaemonConfig(
        relay=_read_relay(file.under(options, "relay")),
        runner_id=read_name(file.under(options, "runner_id"), "runner_id", NAME_CHARACTERS),
        owner=_read_owner(file.under(options, "owner")),
        control_plane_key=_read_control_plane_key(file.under(options, "control_plane_key")),
        keys=file.under(options, "keys").path("keys", folder) or usual_keys,
        pins=_read_pins(file.under(options, "pins"), folder),
        services=services,
        defaults=_read_defaults(file.under(options, "defaults").table("defaults"), services),
        slots=file.under(options, "slots").integer("slots", DEFAULT_SLOTS, 1, MAX_SLOTS),
        prompt_log=_read_prompt_log(file.under(options, "prompt_log").table("prompt_log"), folder),
        limits=_read_limits(file.under(options, "limits").table("limits"), services),
    )
    options.finish()
    if config.control_plane_key is not None and config.owner is None:
        raise file.error("owner", "is missing: a control plane's grants name the owner of the device")
    return config


def _read_pairing(told: Mapping[str, object], folder: Path, usual_keys: Path) -> Mapping[str, object]:
    """What the pairing says of the device that is configured; nothing when that is another one."""
    keys = told.get("keys", str(usual_keys))
    kept = load_pairing(folder / Path(keys).expanduser()) if isinstance(keys, str) else None
    if kept is None or told.get("runner_id", kept.settings["runner_id"]) != kept.settings["runner_id"]:
        return {}
    return kept.settings


def _usual_keys(told: Mapping[str, object], folder: Path) -> Path:
    """Where keys are that nothing names: beside the configuration, or where pairing puts them by default."""
    beside = folder / "keys.json"
    # A configuration that says which device it is about does not mean whichever was paired here.
    if "runner_id" in told or beside.exists():
        return beside
    paired = DEFAULT_FOLDER.expanduser() / "keys.json"
    return paired if paired.exists() else beside


def _read_toml(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        # Both broken TOML, whose message has line and column, and text that is not UTF-8.
        raise ConfigError(f"{path}: {error}") from error


def _read_relay(table: ConfigTable) -> str:
    relay = table.text("relay")
    target = _TARGET.fullmatch(relay)
    if relay.startswith("unix:") or (target is not None and 1 <= int(target["port"]) <= 65_535):
        return relay
    raise table.error("relay", f"{relay!r} is not host:port or unix:PATH")


def _read_owner(table: ConfigTable) -> str | None:
    return read_name(table, "owner", NAME_CHARACTERS) if table.has("owner") else None


def _read_control_plane_key(table: ConfigTable) -> bytes | None:
    text = table.optional_text("control_plane_key")
    if text is None:
        return None
    try:
        key = decode_base64url(text)
    except ValueError:
        key = b""
    if len(key) != PUBLIC_KEY_BYTES:
        raise table.error("control_plane_key", "is not 32 bytes in unpadded base64url")
    return key


def _read_services(table: ConfigTable, folder: Path) -> tuple[ServiceConfig, ...]:
    tables = table.tables("services")
    services = tuple(read_service(entry, folder) for entry in tables)
    names = [service.service for service in services]
    for index, entry in enumerate(tables):
        if names[index] in names[:index]:
            raise entry.error("service", f"{names[index]!r} is the name of another service")
    if sum(len(service.kinds) for service in services) > MATRIX_ROWS:
        raise table.error("services", f"more than {MATRIX_ROWS} pairs of service and kind")
    return services


def _read_defaults(table: ConfigTable, services: Sequence[ServiceConfig]) -> Mapping[str, str]:
    defaults: dict[str, str] = {}
    for kind in sorted(KINDS):
        name = table.optional_text(kind)
        if name is None:
            continue
        if not any(service.service == name and kind in service.kinds for service in services):
            raise table.error(kind, f"no service named {name!r} has this kind")
        defaults[kind] = name
    table.finish()
    return defaults


def _read_pins(table: ConfigTable, folder: Path) -> Mapping[str, PublicIdentity]:
    """Read pins from the table itself, or from the JSON file that is named in its place."""
    if not table.names_file("pins"):
        return _pins_of(table.table("pins"))
    path = table.path("pins", folder)
    if path is None:
        return {}
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise table.error("pins", f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be an object of public identities by key id")
    return _pins_of(ConfigTable(str(path), document))


def _pins_of(table: ConfigTable) -> Mapping[str, PublicIdentity]:
    return {key_id: _pin(table, key_id, value) for key_id, value in table.items()}


def _pin(table: ConfigTable, key_id: str, value: object) -> PublicIdentity:
    if not is_key_id(key_id):
        raise table.error(key_id, "is not a key id")
    try:
        identity = PublicIdentity.from_json(value)
    except ValueError as error:
        raise table.error(key_id, str(error)) from None
    if identity.key_id != key_id:
        raise table.error(key_id, f"the identity under it has the key id {identity.key_id}")
    if not verify_binding(identity):
        raise table.error(key_id, "the identity has not signed its encryption key")
    return identity


def _read_prompt_log(table: ConfigTable, folder: Path) -> PromptLogConfig:
    path = table.path("path", folder) or folder / "prompts.jsonl"
    config = PromptLogConfig(
        path=path if table.flag("enabled", default=True) else None,
        max_bytes=table.integer("max_bytes", prompt_log.MAX_BYTES, 1, _MAX_LOG_BYTES),
        keep=table.integer("keep", prompt_log.KEEP, 0, 1000),
    )
    table.finish()
    return config


def _read_limits(table: ConfigTable, services: Sequence[ServiceConfig]) -> Limits:
    own, others = table.table("own"), table.table("others")
    limits = Limits(
        own=_read_run_limits(own, OWN_LIMITS),
        others=_read_run_limits(others, OTHERS_LIMITS),
        others_per_hour=others.integer("jobs_per_hour", OTHERS_PER_HOUR, 0, 1_000_000),
        others_per_day=others.integer("jobs_per_day", OTHERS_PER_DAY, 0, 1_000_000),
        others_payload_characters=others.integer(
            "payload_characters", OTHERS_PAYLOAD_CHARACTERS, 1, _MAX_PAYLOAD_CHARACTERS
        ),
        ceilings={each.service: each.ceiling for each in services if each.ceiling is not None},
    )
    for read in (own, others, table):
        read.finish()
    return limits


def _read_run_limits(table: ConfigTable, default: RunLimits) -> RunLimits:
    seconds = table.integer("wall_clock_seconds", int(default.wall_clock_seconds), 1, _MAX_SECONDS)
    return RunLimits(
        max_output_bytes=table.integer("output_bytes", default.max_output_bytes, 1, _MAX_OUTPUT_BYTES),
        wall_clock_seconds=seconds,
    )
