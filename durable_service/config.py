"""The durable service's settings. Nothing else reads the environment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from durable_service.core.limits import (
    ARTIFACT_BYTES,
    BLOB_BYTES,
    DEFAULT_LEASE_MS,
    EVENTS_RETAINED,
    MAXIMUM_LEASE_MS,
    MINIMUM_LEASE_MS,
)
from durable_service.purge_policy import parse_purge_policy
from durable_service.store_forms import FORMS, MEMORY, is_known
from service_common.durations import show_duration
from service_common.listener_settings import ListenerSettings
from service_common.settings import SettingsForm


class DurableSettings(ListenerSettings):
    """How the service is served. Each field is also the variable of its name in capitals after `DURABLE_`."""

    model_config = SettingsConfigDict(
        env_prefix="DURABLE_", env_ignore_empty=True, frozen=True, extra="forbid", validate_default=True
    )

    listen: str = Field(
        "127.0.0.1:7434", description="Address to serve on: HOST:PORT, [IPV6]:PORT or unix:PATH."
    )
    store: str = Field(
        MEMORY,
        description="Where tasks live: memory: (lost at a restart), sqlite:///PATH, postgresql://… or mongodb://…",
    )
    blobs: Path | None = Field(None, description="Folder for artifacts; where the tasks are if not set.")
    principals: Path | None = Field(None, description="Principals file: who may call, as whom, what for.")
    admission: Path | None = Field(
        None, description="Rules of admission, JSON: what tasks may be; everything is admitted if not set."
    )
    lease_ms: Annotated[int, Field(ge=MINIMUM_LEASE_MS, le=MAXIMUM_LEASE_MS)] = Field(
        DEFAULT_LEASE_MS, description="How long a worker holds a task without renewing."
    )
    retention_seconds: Annotated[float, Field(allow_inf_nan=False, ge=0, le=315_360_000)] = Field(
        604_800, description="No task is purged before it has been over for this long."
    )
    purge: str = Field(
        "",
        description="When ended tasks are purged: 30d, or completed=7d,failed=30d; never if not set.",
    )
    events_per_task: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        EVENTS_RETAINED, description="Most journal entries kept of a task; the oldest go first."
    )
    event_bytes_per_task: Annotated[int, Field(ge=1, le=1_000_000_000_000)] | None = Field(
        None, description="Most bytes of data in the journal entries kept of a task; no bound if not set."
    )
    event_age_seconds: Annotated[float, Field(allow_inf_nan=False, ge=1, le=315_360_000)] | None = Field(
        None, description="Journal entries of this age are dropped; kept whatever their age if not set."
    )
    artifact_bytes: Annotated[int, Field(ge=1, le=BLOB_BYTES)] = Field(
        ARTIFACT_BYTES, description="Largest artifact taken, in bytes."
    )
    heartbeat_seconds: Annotated[float, Field(allow_inf_nan=False, ge=0.1, le=60)] = Field(
        15, description="Longest silence of the service on a stream."
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
    metrics_listen: str = Field("", description="HOST:PORT for metrics over HTTP, such as 127.0.0.1:9434.")
    admin_listen: str = Field("", description="Address of a listener with health, reflection and channelz.")
    server_instance: str = Field(
        "", description="Name of this process for peers; chosen at start if not set."
    )
    log_format: Literal["auto", "json", "pretty"] = Field(
        "auto", description="auto is pretty on a terminal and JSON elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level logged."
    )
    wanted_streams: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1_000, description="Streams to have room for; too low a limit of open files is warned of."
    )

    @field_validator("store")
    @classmethod
    def _known_store(cls, value: str) -> str:
        if not is_known(value):
            raise ValueError(f"{value!r} is not supported; supported: {', '.join(FORMS)}")
        return value

    @field_validator("purge")
    @classmethod
    def _readable_policy(cls, value: str) -> str:
        parse_purge_policy(value)
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.principals is None:
            raise ValueError(
                "no principals: give --principals FILE; durable-service principals --file FILE add makes one"
            )
        if self.blobs is not None and self.store == MEMORY:
            raise ValueError("--blobs is for a store that lasts; memory: keeps artifacts in memory as well")
        youngest_ms = min(parse_purge_policy(self.purge).values(), default=None)
        if youngest_ms is not None and youngest_ms < self.retention_seconds * 1_000:
            raise ValueError(
                f"--purge is sooner than --retention ({show_duration(self.retention_seconds * 1_000)}) "
                "allows: lower --retention as well, or purge later"
            )
        if self.liveness_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("--liveness must be at least twice --heartbeat, or one late beat ends a stream")
        return self


# The variables of the commands are often set in the shell that starts a service.
FORM: Final = SettingsForm(
    DurableSettings,
    prefix="DURABLE_",
    owner="the durable service",
    help_command="durable-service check-config --help",
    of_commands=frozenset({"ADDRESS", "PRINCIPAL", "KEY", "KEY_FILE"}),
)


def load_settings(flags: Mapping[str, object] | None = None) -> DurableSettings:
    """The settings of the environment with the given ones over them.

    Raises:
        SettingsError: one line for each setting that has to change.
    """
    return FORM.load(flags)
