"""The command of a service, whose sub-commands are loaded when they are asked for."""

import importlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

import click


class CommandGroup(click.Group):
    """A group that imports a command when it is used, so that one need not wait for what another needs.

    Args:
        modules: `module:attribute` of each command, by its name, in the order in which they are listed.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._modules = modules
        self.add_command(version)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, those that are loaded on demand first."""
        return [*self._modules, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now if it has to be."""
        if cmd_name not in self._modules:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._modules[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.command()
def version() -> None:
    """Print the version."""
    try:
        click.echo(f"sealwork {version_of('sealwork')}")
    except PackageNotFoundError:
        click.echo("sealwork, version unknown: it is not installed")
