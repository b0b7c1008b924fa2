import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_service.client.backends.command import CommandBackend
from relay_service.client.backends.factory import open_backend
from relay_service.client.backends.openai_http import OpenAIHttpBackend
from relay_service.client.config_table import ConfigError
from relay_service.client.service_config import FixedCommand, HttpEndpoint, ServiceConfig
from service_common.clocks import ManualClock
from tests.relay_service.client.backends.jobs import generate
from tests.relay_service.client.backends.model_stub import DONE, ModelStub, event, model_stub, streamed

SECRET = "sk-very-secret"


def service(endpoint: HttpEndpoint | FixedCommand) -> ServiceConfig:
    return ServiceConfig(
        service="local",
        kinds=("llm.generate",),
        backend_id="llamacpp",
        model="small",
        offer_scope="private",
        endpoint=endpoint,
        cost="free",
    )


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with model_stub() as running:
        running.answer = streamed(event("Hi"), event(finish="stop"), DONE)
        yield running


async def key_sent(stub: ModelStub, endpoint: HttpEndpoint, environment: dict[str, str]) -> str | None:
    backend = open_backend(service(endpoint), environment, ManualClock())
    await backend.run(generate("Hello?"), asyncio.Event())
    await backend.close()
    return stub.requests[0].headers.get("authorization")


def key_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


async def test_an_http_service(stub: ModelStub) -> None:
    endpoint = HttpEndpoint(stub.base_url, max_tokens=32)
    backend = open_backend(service(endpoint), {}, ManualClock())
    assert isinstance(backend, OpenAIHttpBackend)
    await backend.run(generate("Hello?"), asyncio.Event())
    await backend.close()

    assert (backend.service, backend.backend_id, backend.model) == ("local", "llamacpp", "small")
    assert stub.requests[0].document["max_tokens"] == 32
    assert "authorization" not in stub.requests[0].headers


async def test_a_command() -> None:
    backend = open_backend(service(FixedCommand(("cat",))), {"PATH": "/usr/bin:/bin"}, ManualClock())
    assert isinstance(backend, CommandBackend)
    assert (await backend.run(generate("Hello?"), asyncio.Event())).text == "Hello?"


async def test_the_key_comes_from_a_file(stub: ModelStub, tmp_path: Path) -> None:
    path = key_file(tmp_path, f" {SECRET}\n".encode())
    assert await key_sent(stub, HttpEndpoint(stub.base_url, api_key_file=path), {}) == f"Bearer {SECRET}"


async def test_the_key_comes_from_the_environment(stub: ModelStub) -> None:
    endpoint = HttpEndpoint(stub.base_url, api_key_variable="MODEL_KEY")
    assert await key_sent(stub, endpoint, {"MODEL_KEY": SECRET, "OTHER": "x"}) == f"Bearer {SECRET}"


@pytest.mark.parametrize("value", ["", "  ", f"{SECRET}\nhost: evil.test", f"{SECRET}é", f"{SECRET}\x00"])
def test_a_key_that_cannot_be_sent_is_not_quoted(value: str) -> None:
    endpoint = HttpEndpoint("http://127.0.0.1:1", api_key_variable="MODEL_KEY")
    with pytest.raises(ConfigError) as caught:
        open_backend(service(endpoint), {"MODEL_KEY": value}, ManualClock())
    assert str(caught.value) == "$MODEL_KEY: holds no API key for the service local"


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    endpoint = HttpEndpoint("http://127.0.0.1:1", api_key_file=tmp_path / "key")
    with pytest.raises(ConfigError, match=r"/key: No such file"):
        open_backend(service(endpoint), {}, ManualClock())
    with pytest.raises(ConfigError, match=r"\$MODEL_KEY: holds no API key"):
        open_backend(
            service(HttpEndpoint("http://127.0.0.1:1", api_key_variable="MODEL_KEY")), {}, ManualClock()
        )


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    endpoint = HttpEndpoint("http://127.0.0.1:1", api_key_file=key_file(tmp_path, SECRET.encode(), mode))
    with pytest.raises(ConfigError, match=r"others can read this API key; run: chmod 600"):
        open_backend(service(endpoint), {}, ManualClock())


def test_a_key_file_that_is_not_text(tmp_path: Path) -> None:
    endpoint = HttpEndpoint("http://127.0.0.1:1", api_key_file=key_file(tmp_path, b"\xff\xfe"))
    with pytest.raises(ConfigError, match="not the text of an API key"):
        open_backend(service(endpoint), {}, ManualClock())
