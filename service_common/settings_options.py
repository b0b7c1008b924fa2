"""An option for every setting, so that help, environment and command line cannot drift apart."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from service_common.durations import Duration, show_duration
from service_common.settings import SettingsForm, flag_of

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(form: SettingsForm[Any], metavars: Mapping[str, str]) -> Callable[[Command], Command]:
    """Give a command an option for every setting, passed by the field's name; None where it is not given."""

    def decorate(command: Command) -> Command:
        for name, field in reversed(form.type.model_fields.items()):
            command = _option(form, name, field, metavars.get(name))(command)
        return command

    return decorate


def _option(
    form: SettingsForm[Any], name: str, field: FieldInfo, metavar: str | None
) -> Callable[[Command], Command]:
    flag = flag_of(name)
    help_text = f"{field.description} [{form.variable_of(name)}{_default(name, field)}]"
    if field.annotation is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=help_text)
    return click.option(flag, name, type=_type(name, field), metavar=metavar, help=help_text)


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
