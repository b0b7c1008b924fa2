"""The relay's settings. Nothing else reads the environment."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from relay_service.core.limits import DEFAULT_LEASE_MS, MAXIMUM_LEASE_MS, MINIMUM_LEASE_MS
from relay_service.store_forms import FORMS, MEMORY, is_known
from service_common.errors import SettingsError
from service_common.listener_settings import ListenerSettings
from service_common.listeners import is_loopback
from service_common.settings import SettingsForm

PREFIX: Final = "RELAY_"

_VERSION: Final = re.compile(r"v?\d{1,9}\.\d{1,9}\.\d{1,9}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_WEB_PAGE: Final = re.compile(r"https?://[!-~]{1,2000}")


class RelaySettings(ListenerSettings):
    """How a relay is served. Each field is also the variable of its name in capitals after `RELAY_`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", validate_default=True
    )

    listen: str = Field(
        "127.0.0.1:7433", description="Address to serve on: HOST:PORT, [IPV6]:PORT or unix:PATH."
    )
    dev: bool = Field(
        False, description="Serve for development: insecure, loopback only, projection optional."
    )
    store: str = Field(
        MEMORY,
        description="Where routing state lives: memory: (lost at a restart), embedded:DIR, valkey://HOST:PORT/DB.",
    )
    projection: Path | None = Field(None, description="Projection file: sites, consents, devices, rosters.")
    policy: str = Field(
        "", description="Address of the operator's PolicyService: HOST:PORT or unix:PATH; none if not set."
    )
    policy_ca: Path | None = Field(
        None, description="Roots that the policy's certificate is checked against; the system's if not set."
    )
    operator_identity: Path | None = Field(
        None,
        description='Public identity of the operator, who may decide and look on as "operator"; of several, '
        "a folder with a NAME.json for each.",
    )
    lease_ms: Annotated[int, Field(ge=MINIMUM_LEASE_MS, le=MAXIMUM_LEASE_MS)] = Field(
        DEFAULT_LEASE_MS, description="How long a device holds a job without renewing."
    )
    heartbeat_seconds: Annotated[float, Field(allow_inf_nan=False, ge=0.1, le=60)] = Field(
        15, description="Longest silence of the relay on a stream."
    )
    liveness_seconds: Annotated[float, Field(allow_inf_nan=False, ge=0.2, le=600)] = Field(
        45, description="A stream that was silent for this long is ended."
    )
    stream_age_seconds: Annotated[float, Field(allow_inf_nan=False, ge=1, le=86_400)] = Field(
        1_800, description="Age at which a stream is asked to move, spread by 20 % either way."
    )
    drain_grace_seconds: Annotated[float, Field(allow_inf_nan=False, ge=1, le=3_600)] = Field(
        30, description="Longest time from SIGTERM to the end of the process."
    )
    metrics_listen: str = Field("", description="HOST:PORT for metrics over HTTP, such as 127.0.0.1:9433.")
    admin_listen: str = Field("", description="Address of a listener for operators alone.")
    server_instance: str = Field(
        "", description="Name of this process for peers; chosen at start if not set."
    )
    daemon_floor: str = Field("", description="Oldest version of a daemon that is served, such as 1.4.0.")
    offered_version: str = Field("", description="Version that daemons are told to move to.")
    log_format: Literal["auto", "json", "pretty"] = Field(
        "auto", description="auto is pretty on a terminal and JSON elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level logged."
    )
    max_sessions_per_site: Annotated[int, Field(ge=1, le=1_024)] = Field(
        16, description="Streams that one site may have open."
    )
    pairing: bool = Field(
        True, description="Let devices pair by a code that the operator approves; --no-pairing turns it off."
    )
    verification_url: str = Field(
        "",
        description="Page where a person approves a pairing; without it devices name the operator's command.",
    )
    control_plane_key: Path | None = Field(
        None,
        description="Public key that signs grants, told to devices on approval: an identity, or base64url.",
    )
    pairing_starts_per_minute: Annotated[int, Field(ge=1, le=100_000)] = Field(
        10, description="Pairings that one address may start; behind a proxy all devices are one address."
    )
    wanted_daemons: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1_000,
        description="Devices to have room for; too low a limit of open files is warned of.",
    )

    @field_validator("store")
    @classmethod
    def _known_store(cls, value: str) -> str:
        if not is_known(value):
            raise ValueError(f"{value!r} is not supported; supported: {', '.join(FORMS)}")
        return value

    @field_validator("daemon_floor", "offered_version")
    @classmethod
    def _version(cls, value: str) -> str:
        if value and not _VERSION.fullmatch(value):
            raise ValueError(f"{value!r} is not a version such as 1.4.0")
        return value

    @field_validator("verification_url")
    @classmethod
    def _web_page(cls, value: str) -> str:
        if value and not _WEB_PAGE.fullmatch(value):
            raise ValueError("must begin with https:// or http:// and have no spaces")
        return value

    @field_validator("policy")
    @classmethod
    def _policy_address(cls, value: str) -> str:
        try:
            if value:
                is_loopback(value)
        except SettingsError:
            raise ValueError(f"{value!r} is no address: write HOST:PORT, [IPV6]:PORT or unix:PATH") from None
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.projection is None and not self.dev and self.store == MEMORY:
            raise ValueError(
                "no projection: give --projection FILE (relay-service init FOLDER makes one), or a store "
                "that keeps one (embedded:DIR, valkey://HOST:PORT/DB), or --dev to begin with nothing"
            )
        if self.policy_ca is not None and not self.policy:
            raise ValueError("--policy-ca is for --policy, which is not given")
        if self.control_plane_key is not None and not self.policy:
            raise ValueError(
                "--control-plane-key without --policy: devices would wait for signed grants that nobody "
                "gives; say --policy ADDRESS, or leave the key out"
            )
        if self.liveness_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("--liveness must be at least twice --heartbeat, or one late beat ends a stream")
        return self


FORM: Final = SettingsForm(
    RelaySettings,
    prefix=PREFIX,
    owner="the relay",
    help_command="relay-service check-config --help",
    # Read by the commands that call a relay, often in the shell that starts one.
    of_commands=frozenset({"OPERATOR_KEY"}),
)


def load_settings(flags: Mapping[str, object] | None = None) -> RelaySettings:
    """Return the settings of the environment with the given ones over them.

    Args:
        flags: Values by field; None stands for one that was not given.

    Raises:
        SettingsError: One line for each setting that has to change.
    """
    return FORM.load(flags)


def describe_settings(settings: RelaySettings) -> dict[str, str]:
    """Return the effective settings as text by variable name, secrets masked."""
    return FORM.describe(settings)


def variable_of(field: str) -> str:
    """Return the environment variable of a field."""
    return FORM.variable_of(field)
