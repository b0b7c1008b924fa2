"""Reading a table of a configuration file strictly: every key known, every value of its type and in range."""

import difflib
from collections.abc import Mapping
from pathlib import Path


class ConfigError(Exception):
    """The configuration cannot be used. The message names the file and the key, and is for the owner."""


class ConfigTable:
    """One table of a file, and which of its keys have been read."""

    def __init__(self, source: str, values: Mapping[str, object], name: str = "") -> None:
        """Wrap a table.

        Args:
            source: The file's name, for messages.
            values: What it holds.
            name: Dotted name of the table within the file; empty for the whole of it.
        """
        self._source = source
        self._values = values
        self._name = name
        self._known: list[str] = []

    def has(self, key: str) -> bool:
        """Tell whether the key is there; that alone does not count as reading it."""
        return key in self._values

    def names_file(self, key: str) -> bool:
        """Tell whether the key holds text, where it may hold a table or the name of a file."""
        return isinstance(self._values.get(key), str)

    def items(self) -> list[tuple[str, object]]:
        """Return the keys and values of a table whose keys are data."""
        self._known.extend(self._values)
        return list(self._values.items())

    def under(self, options: "ConfigTable", key: str) -> "ConfigTable":
        """Return the table to read the key from: the options if they have it, else this one."""
        self.allow(key)
        options.allow(key)
        return options if options.has(key) else self

    def allow(self, key: str) -> None:
        """Count the key as known without reading it."""
        self._known.append(key)

    def error(self, key: str, message: str) -> ConfigError:
        """Return an error about a key of this table."""
        return ConfigError(f"{self._source}: {self._path(key)}: {message}")

    def text(self, key: str) -> str:
        """Return text that must be there and not be blank."""
        value = self.optional_text(key)
        if value is None:
            raise self.error(key, "is missing")
        return value

    def optional_text(self, key: str) -> str | None:
        match self._take(key):
            case None:
                return None
            case str() as value if value.strip():
                return value
            case str():
                raise self.error(key, "must not be blank")
            case value:
                raise self.error(key, f"must be text, not {_type_name(value)}")

    def choice(self, key: str, choices: frozenset[str], default: str | None = None) -> str:
        """Return one of the choices."""
        value = self.optional_text(key) or default
        if value is None:
            raise self.error(key, f"is missing; one of {_listed(choices)}")
        if value not in choices:
            raise self.error(key, f"{value!r} is not one of {_listed(choices)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of text, empty if the key is absent."""
        match self._take(key):
            case None:
                return ()
            case [*values]:
                return tuple(self._item_text(key, index, value) for index, value in enumerate(values))
            case value:
                raise self.error(key, f"must be a list of text, not {_type_name(value)}")

    def integer(self, key: str, default: int, minimum: int, maximum: int) -> int:
        """Return a whole number within bounds, both included."""
        match self._take(key):
            case None:
                return default
            case int() as value if not isinstance(value, bool):
                if not minimum <= value <= maximum:
                    raise self.error(key, f"{value} is not within {minimum} to {maximum}")
                return value
            case value:
                raise self.error(key, f"must be a whole number, not {_type_name(value)}")

    def flag(self, key: str, *, default: bool) -> bool:
        match self._take(key):
            case None:
                return default
            case bool() as value:
                return value
            case value:
                raise self.error(key, f"must be true or false, not {_type_name(value)}")

    def path(self, key: str, folder: Path) -> Path | None:
        """Return a path; `~` is the owner's home, a relative path starts at the folder."""
        value = self.optional_text(key)
        return None if value is None else folder / Path(value).expanduser()

    def table(self, key: str) -> "ConfigTable":
        """Return the table under the key, an empty one if it is absent."""
        match self._take(key):
            case None:
                return ConfigTable(self._source, {}, self._path(key))
            case Mapping() as values:
                return ConfigTable(self._source, values, self._path(key))
            case value:
                raise self.error(key, f"must be a table, not {_type_name(value)}")

    def tables(self, key: str) -> "list[ConfigTable]":
        """Return the tables of a list of tables, none if it is absent."""
        match self._take(key):
            case None:
                return []
            case [*items]:
                return [self._item_table(key, index, item) for index, item in enumerate(items)]
            case value:
                raise self.error(key, f"must be a list of tables, not {_type_name(value)}")

    def finish(self) -> None:
        """Refuse keys that nothing has read: a misspelt one must not be a setting that silently is not set.

        Raises:
            ConfigError: There is one.
        """
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                hint = f"; is {near[0]} meant?" if near else f"; known here: {_listed(self._known)}"
                raise self.error(key, f"unknown key{hint}")

    def _take(self, key: str) -> object:
        self._known.append(key)
        return self._values.get(key)

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def _item_text(self, key: str, index: int, value: object) -> str:
        if not isinstance(value, str):
            raise self.error(f"{key}[{index}]", f"must be text, not {_type_name(value)}")
        return value

    def _item_table(self, key: str, index: int, value: object) -> "ConfigTable":
        if not isinstance(value, Mapping):
            raise self.error(f"{key}[{index}]", f"must be a table, not {_type_name(value)}")
        return ConfigTable(self._source, value, self._path(f"{key}[{index}]"))


def _listed(words: frozenset[str] | list[str]) -> str:
    return ", ".join(sorted(set(words)))


def _type_name(value: object) -> str:
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a table",
    }
    return names.get(type(value), type(value).__name__)
