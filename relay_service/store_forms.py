"""The forms of the `--store` setting."""

MEMORY = "memory:"
EMBEDDED = "embedded:"
FORMS = (MEMORY, "embedded:DIR", "valkey://HOST:PORT/DB", "valkeys://HOST:PORT/DB", "unix://PATH")

_SERVERS = ("valkey://", "valkeys://", "unix://")


def is_known(setting: str) -> bool:
    """The setting has one of the forms that there are."""
    return setting == MEMORY or is_embedded(setting) or setting.startswith(_SERVERS)


def is_embedded(setting: str) -> bool:
    """The relay runs the server itself."""
    return setting.startswith(EMBEDDED) and len(setting) > len(EMBEDDED)
