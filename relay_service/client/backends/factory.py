"""Making back ends from their configuration."""

import stat
from collections.abc import Mapping
from pathlib import Path

from relay_service.client.backends.base import Backend
from relay_service.client.backends.command import CommandBackend
from relay_service.client.backends.openai_http import OpenAIHttpBackend
from relay_service.client.config_table import ConfigError
from relay_service.client.service_config import FixedCommand, HttpEndpoint, ServiceConfig
from service_common.clocks import Clock


def open_backend(service: ServiceConfig, environment: Mapping[str, str], clock: Clock) -> Backend:
    """Return the back end of a service; nothing is connected or started yet.

    Args:
        service: Its configuration.
        environment: The daemon's environment: API keys, and PATH and LANG of commands, come from it.
        clock: Measures runs.

    Raises:
        ConfigError: The API key cannot be read.
    """
    match service.endpoint:
        case HttpEndpoint() as endpoint:
            return OpenAIHttpBackend(
                service=service.service,
                base_url=endpoint.base_url,
                model=service.model,
                backend_id=service.backend_id,
                api_key=_api_key(service.service, endpoint, environment),
                max_tokens=endpoint.max_tokens,
                clock=clock,
            )
        case FixedCommand() as command:
            return CommandBackend(
                service=service.service,
                argv=command.argv,
                model=service.model,
                backend_id=service.backend_id,
                environment=environment,
                clock=clock,
            )


def _api_key(service: str, endpoint: HttpEndpoint, environment: Mapping[str, str]) -> str | None:
    if endpoint.api_key_file is not None:
        source, key = str(endpoint.api_key_file), _read_private(endpoint.api_key_file)
    elif endpoint.api_key_variable is not None:
        source = f"${endpoint.api_key_variable}"
        key = environment.get(endpoint.api_key_variable, "")
    else:
        return None
    key = key.strip()
    # The message must not quote what it refuses.
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(f"{source}: holds no API key for the service {service}")
    return key


def _read_private(path: Path) -> str:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"{path}: others can read this API key; run: chmod 600 {path}")
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError:
        raise ConfigError(f"{path}: not the text of an API key") from None
