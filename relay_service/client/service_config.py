"""One configured service of a daemon: which back end answers which kinds, and for whom."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from relay_service.client.backends.base import HTTP_IDS, KINDS, LOCAL_IDS, SUBSCRIPTION_IDS
from relay_service.client.backends.command import checked_argv
from relay_service.client.backends.cost import Cost, cost_of_http, subscription_of
from relay_service.client.backends.openai_http import checked_base_url
from relay_service.client.config_table import ConfigTable

OfferScope = Literal["private", "team"]

NAME_CHARACTERS = 128
MODEL_CHARACTERS = 256
MAX_TOKENS = 1_000_000
MAX_CEILING = 1_000_000_000

_BACKENDS = HTTP_IDS | SUBSCRIPTION_IDS | {"command"}
_SCOPES = frozenset({"private", "team"})
# Where each server listens unless it is told otherwise.
_LOCAL_URLS = {
    "ollama": "http://127.0.0.1:11434",
    "mlx": "http://127.0.0.1:8080",
    "llamacpp": "http://127.0.0.1:8080",
    "vllm": "http://127.0.0.1:8000",
    "lmstudio": "http://127.0.0.1:1234",
    "jan": "http://127.0.0.1:1337",
    "localai": "http://127.0.0.1:8080",
}


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """An OpenAI-compatible endpoint.

    Attributes:
        base_url: Where it is, checked.
        api_key_file: File that holds the key, if one is needed.
        api_key_variable: Environment variable that holds it instead.
        max_tokens: The owner's bound on an answer.
    """

    base_url: str
    api_key_file: Path | None = None
    api_key_variable: str | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class FixedCommand:
    """A command; its arguments are all it is ever called with."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """One service.

    Attributes:
        service: The owner's name for it.
        kinds: Kinds of job that it may be used for.
        backend_id: What the capability matrix calls its back end.
        model: The model, which nothing but this configuration chooses.
        offer_scope: `team` offers it to the people of the owner's rosters too.
        endpoint: How it is reached.
        cost: What a run costs; it cannot be configured.
        ceiling: For a metered service that is offered to the team: what other people's work may use of it
            within any 24 hours, in characters of prompts and answers together. None for every other one.
    """

    service: str
    kinds: tuple[str, ...]
    backend_id: str
    model: str
    offer_scope: OfferScope
    endpoint: HttpEndpoint | FixedCommand
    cost: Cost
    ceiling: int | None = None


def read_service(table: ConfigTable, folder: Path) -> ServiceConfig:
    """Read one table of the `services` list.

    Args:
        table: The table.
        folder: Where relative paths start.

    Raises:
        ConfigError: Something in it cannot be used.
    """
    backend = table.choice("backend", _BACKENDS)
    endpoint: HttpEndpoint | FixedCommand
    if backend in HTTP_IDS:
        endpoint = _read_http(table, backend, folder)
        backend_id = backend
        cost = cost_of_http(backend, endpoint.base_url)
    else:
        endpoint = _read_command(table)
        backend_id = _command_id(table, backend, endpoint.argv)
        cost = "subscription" if backend_id in SUBSCRIPTION_IDS else "free"
    scope, ceiling = _read_sharing(table, cost)
    service = ServiceConfig(
        service=read_name(table, "service", NAME_CHARACTERS),
        kinds=_read_kinds(table),
        backend_id=backend_id,
        model=read_name(table, "model", MODEL_CHARACTERS),
        offer_scope=scope,
        endpoint=endpoint,
        cost=cost,
        ceiling=ceiling,
    )
    table.finish()
    return service


def read_name(table: ConfigTable, key: str, characters: int) -> str:
    """Read text that travels: bounded, and without control characters.

    Raises:
        ConfigError: It is missing or breaks a bound.
    """
    name = table.text(key)
    if len(name) > characters or any(unicodedata.category(character) == "Cc" for character in name):
        raise table.error(key, f"must be 1 to {characters} characters, none of them a control character")
    return name


def _read_http(table: ConfigTable, backend: str, folder: Path) -> HttpEndpoint:
    text = table.optional_text("base_url") or _LOCAL_URLS.get(backend)
    if text is None:
        raise table.error("base_url", "is missing")
    try:
        base_url = checked_base_url(text)
    except ValueError as error:
        raise table.error("base_url", str(error)) from None
    endpoint = HttpEndpoint(
        base_url=base_url,
        api_key_file=table.path("api_key_file", folder),
        api_key_variable=table.optional_text("api_key_env"),
        max_tokens=table.integer("max_tokens", 0, 1, MAX_TOKENS) or None,
    )
    if endpoint.api_key_file is not None and endpoint.api_key_variable is not None:
        raise table.error("api_key_env", "cannot be given together with api_key_file")
    return endpoint


def _read_command(table: ConfigTable) -> FixedCommand:
    try:
        return FixedCommand(checked_argv(table.texts("argv")))
    except ValueError as error:
        raise table.error("argv", str(error)) from None


def _command_id(table: ConfigTable, backend: str, argv: Sequence[str]) -> str:
    """Return the id to advertise; a program known to spend a subscription is that, whatever is configured."""
    known = subscription_of(argv)
    if backend in SUBSCRIPTION_IDS:
        return known or backend
    configured = table.choice("backend_id", LOCAL_IDS, default="llamacpp")
    return known or configured


def _read_kinds(table: ConfigTable) -> tuple[str, ...]:
    if table.has("kind"):
        return (table.choice("kind", KINDS),)
    kinds = table.texts("kinds") or tuple(sorted(KINDS))
    for index, kind in enumerate(kinds):
        if kind not in KINDS:
            raise table.error(f"kinds[{index}]", f"{kind!r} is not one of {', '.join(sorted(KINDS))}")
        if kind in kinds[:index]:
            raise table.error(f"kinds[{index}]", f"{kind!r} is there twice")
    return kinds


def _read_sharing(table: ConfigTable, cost: Cost) -> tuple[OfferScope, int | None]:
    """Return for whom the service is, and the ceiling on what others may spend."""
    scope = cast("OfferScope", table.choice("offer_scope", _SCOPES, default="private"))
    acknowledged = table.flag("acknowledge_cost", default=False)
    ceiling = table.integer("ceiling_characters_per_day", 0, 1, MAX_CEILING) or None
    if scope == "private" or cost == "free":
        return scope, None
    if cost == "subscription":
        raise table.error("offer_scope", "this back end is a subscription, which is its owner's alone")
    if not acknowledged or ceiling is None:
        raise table.error(
            "offer_scope",
            "this back end is metered: what others ask of it costs you money; to share it nevertheless, set"
            " acknowledge_cost = true and ceiling_characters_per_day",
        )
    return scope, ceiling
