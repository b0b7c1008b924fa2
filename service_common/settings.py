"""Settings of a server from its environment and its command line, and what is wrong with them."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from pydantic import SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from service_common.errors import SettingsError
from service_common.listeners import is_loopback

Settings = TypeVar("Settings", bound=BaseSettings)

_UNITS: Final = {"_ms": "milliseconds", "_seconds": "seconds"}
_INSTANCE: Final = re.compile(r"[!-~]{0,128}")


class ServerSettings(BaseSettings):
    """What the settings of every server have in common: whose word counts first, and how values are spelt."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the name and place are the library's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what the caller gives before what the environment says."""
        return init_settings, env_settings

    # The fields are those of the servers, each with words of its own.
    @field_validator("log_level", "log_format", mode="before", check_fields=False)
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("server_instance", check_fields=False)
    @classmethod
    def _instance(cls, value: str) -> str:
        if not _INSTANCE.fullmatch(value):
            raise ValueError("must be at most 128 printable ASCII characters without spaces")
        return value

    @field_validator("metrics_listen", check_fields=False)
    @classmethod
    def _tcp_address(cls, value: str) -> str:
        if value.startswith("unix"):
            raise ValueError("metrics are served over TCP alone: write HOST:PORT")
        if value:
            is_loopback(value)
        return value


@dataclass(frozen=True)
class SettingsForm(Generic[Settings]):
    """How the settings of one server are spelt.

    Attributes:
        type: the settings.
        prefix: of their environment variables, such as `DURABLE_`.
        owner: what they are settings of, in words.
        help_command: what lists them.
        of_commands: variables with the prefix that are none of the server's, without the prefix.
    """

    type: type[Settings]
    prefix: str
    owner: str
    help_command: str
    of_commands: frozenset[str] = frozenset()

    def load(self, flags: Mapping[str, object] | None = None) -> Settings:
        """The settings of the environment with the given ones over them.

        Args:
            flags: values by field; None stands for one that was not given.

        Raises:
            SettingsError: one line for each setting that has to change.
        """
        given: dict[str, Any] = {name: value for name, value in (flags or {}).items() if value is not None}
        faults = list(self._unknown_variables(os.environ))
        try:
            settings = self.type(**given)
        except ValidationError as error:
            faults.extend(self._fault(detail, given) for detail in error.errors())
        else:
            if not faults:
                return settings
        raise SettingsError("\n".join(faults))

    def describe(self, settings: Settings) -> dict[str, str]:
        """The effective settings as text by variable name, secrets masked."""
        fields = self.type.model_fields
        return {self.variable_of(name): _shown(getattr(settings, name)) for name in fields}

    def variable_of(self, field: str) -> str:
        """The environment variable of a field."""
        return self.prefix + field.upper()

    def _unknown_variables(self, environment: Mapping[str, str]) -> Iterable[str]:
        known = [field.upper() for field in self.type.model_fields]
        for name, value in sorted(environment.items()):
            setting = name.upper().removeprefix(self.prefix)
            if setting == name.upper() or setting in known or setting in self.of_commands:
                continue
            if self._is_service_link(name, value):
                continue
            near = difflib.get_close_matches(setting, known, n=1)
            meant = f"did you mean {self.prefix}{near[0]}?" if near else f"{self.help_command} lists them"
            yield f"{name}: is not a setting of {self.owner}; {meant}"

    def _is_service_link(self, name: str, value: str) -> bool:
        """Whether Kubernetes made it, for a service whose name begins like our variables."""
        link, port = self._service_links
        return bool(link.fullmatch(name) or port.fullmatch(f"{name}={value}"))

    @cached_property
    def _service_links(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        link = (
            rf"{self.prefix}(?:\w+_)?"
            r"(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
        )
        return re.compile(link), re.compile(rf"{self.prefix}(?:\w+_)?PORT=(?:tcp|udp|sctp)://\S+")

    def _fault(self, detail: Any, given: Mapping[str, object]) -> str:
        message = str(detail["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
        if not detail["loc"]:
            return message
        field = str(detail["loc"][0])
        if field not in self.type.model_fields:
            return f"{field}: is not a setting of {self.owner}"
        if detail["type"] in {"greater_than_equal", "less_than_equal"}:
            message += next((f" {unit}" for suffix, unit in _UNITS.items() if field.endswith(suffix)), "")
        return f"{flag_of(field) if field in given else self.variable_of(field)}: {message}"


def flag_of(field: str) -> str:
    """The option of a field; options take durations with their unit, so the name has none."""
    return "--" + field.removesuffix("_ms").removesuffix("_seconds").replace("_", "-")


def _shown(value: object) -> str:
    match value:
        case SecretStr():
            return str(value)
        case str() if "@" in value and "://" in value:
            # A password before the host.
            scheme, _, rest = value.partition("://")
            return f"{scheme}://***@{rest.rpartition('@')[2]}"
        case bool():
            return str(value).lower()
        case None:
            return ""
        case float():
            return f"{value:g}"
        case _:
            return str(value)
