"""What a pairing has brought, kept in a file beside the device's keys."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relay_service.client.config_table import ConfigError, ConfigTable
from relay_service.client.daemon_pairing import PairedDevice
from relay_service.core.identity import encode_base64url
from service_common.atomic_file import create_file, replace_file

VERSION: Final = 1

_MODE: Final = 0o600
# What `run` takes from here, under the names of its own configuration.
_SETTINGS: Final = ("relay", "runner_id", "owner", "control_plane_key", "pins")


@dataclass(frozen=True, slots=True)
class Transport:
    """How the relay was reached, as the options say it."""

    tls: bool = False
    tls_ca: Path | None = None
    plaintext: bool = False


@dataclass(frozen=True, slots=True)
class KeptPairing:
    """A pairing out of its file.

    Attributes:
        key_id: Of the keys that were paired.
        settings: For the configuration of a daemon, under the names that its file has.
        transport: How the relay is reached.
    """

    key_id: str
    settings: Mapping[str, object]
    transport: Transport


def pairing_path(keys: Path) -> Path:
    """Return where the pairing of a key file is kept."""
    return keys.with_name(f"{keys.stem}.pairing.json")


def save_pairing(keys: Path, key_id: str, relay: str, transport: Transport, paired: PairedDevice) -> Path:
    """Write the pairing with mode 0600, all of it or nothing, in the place of an earlier one.

    Raises:
        OSError: It cannot be written; an earlier one is as it was.
    """
    document: dict[str, Any] = {
        "version": VERSION,
        "key_id": key_id,
        "relay": relay,
        "tls": transport.tls,
        "tls_ca": None if transport.tls_ca is None else str(transport.tls_ca.absolute()),
        "plaintext": transport.plaintext,
        "runner_id": paired.runner_id,
        "owner": paired.owner,
        "control_plane_key": _key_text(paired.control_plane_key),
        "pins": {key_id: identity.to_json() for key_id, identity in paired.pins.items()},
    }
    content = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    path = pairing_path(keys)
    try:
        create_file(path, content)
    except FileExistsError:
        # Its mode is kept, and an earlier release or a person may have opened it to others.
        path.chmod(_MODE)
        replace_file(path, content)
    return path


def load_pairing(keys: Path) -> KeptPairing | None:
    """Read the pairing of a key file; None when it was never paired.

    Raises:
        ConfigError: There is one, and it cannot be used.
    """
    path = pairing_path(keys)
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{path}: not JSON; pair again with: relay-daemon pair") from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ConfigError(f"{path}: not a pairing of version {VERSION}; pair again with: relay-daemon pair")
    table = ConfigTable(str(path), document)
    tls_ca = table.optional_text("tls_ca")
    transport = Transport(
        tls=table.flag("tls", default=False),
        tls_ca=None if tls_ca is None else Path(tls_ca),
        plaintext=table.flag("plaintext", default=False),
    )
    for name in ("relay", "runner_id", "owner"):
        table.text(name)
    settings = {name: document[name] for name in _SETTINGS if document.get(name) is not None}
    return KeptPairing(table.text("key_id"), settings, transport)


def _key_text(key: bytes | None) -> str | None:
    return None if key is None else encode_base64url(key)
