"""An option for every setting of the relay, so that help, environment and command line cannot drift apart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from relay_service.config import RelaySettings, flag_of, variable_of
from service_common.durations import Duration, show_duration

Command = TypeVar("Command", bound=Callable[..., Any])

_METAVARS = {
    "listen": "ADDRESS",
    "store": "URL",
    "projection": "FILE",
    "policy": "ADDRESS",
    "policy_ca": "FILE",
    "metrics_listen": "HOST:PORT",
    "admin_listen": "ADDRESS",
    "server_instance": "NAME",
    "daemon_floor": "VERSION",
    "offered_version": "VERSION",
    "max_sessions_per_site": "NUMBER",
    "wanted_daemons": "NUMBER",
    "verification_url": "URL",
    "control_plane_key": "FILE",
    "pairing_starts_per_minute": "NUMBER",
}


def settings_options(command: Command) -> Command:
    """Give a command an option for every setting, passed by the field's name; None where it is not given."""
    for name, field in reversed(RelaySettings.model_fields.items()):
        command = _option(name, field)(command)
    return command


def _option(name: str, field: FieldInfo) -> Callable[[Command], Command]:
    flag = flag_of(name)
    help_text = f"{field.description} [{variable_of(name)}{_default(name, field)}]"
    if field.annotation is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=help_text)
    return click.option(flag, name, type=_type(name, field), metavar=_METAVARS.get(name), help=help_text)


def _type(name: str, field: FieldInfo) -> click.ParamType[Any] | type:
    if name.endswith(("_ms", "_seconds")):
        return Duration(milliseconds=name.endswith("_ms"))
    annotation = field.annotation
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation), case_sensitive=False)
    if Path in get_args(annotation):
        return click.Path(path_type=Path)
    return int if annotation is int else str


def _default(name: str, field: FieldInfo) -> str:
    if isinstance(field.default, bool) or field.default in {None, ""}:
        return ""
    if name.endswith("_ms"):
        return f"; default {show_duration(field.default)}"
    if name.endswith("_seconds"):
        return f"; default {show_duration(field.default * 1_000)}"
    return f"; default {field.default}"
