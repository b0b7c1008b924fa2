import tomllib
from pathlib import Path

import pytest

from relay_service.client.config_table import ConfigError, ConfigTable
from relay_service.client.service_config import HttpEndpoint, ServiceConfig, read_service


def service_of(*lines: str) -> ServiceConfig:
    values = tomllib.loads("\n".join(["service = 'x'", "model = 'm'", *lines]))
    return read_service(ConfigTable("daemon.toml", values, "services[0]"), Path("/etc/relay"))


def error_of(*lines: str) -> str:
    with pytest.raises(ConfigError) as caught:
        service_of(*lines)
    return str(caught.value).removeprefix("daemon.toml: services[0].")


@pytest.mark.parametrize(
    ("backend", "base_url"),
    [
        ("ollama", "http://127.0.0.1:11434"),
        ("llamacpp", "http://127.0.0.1:8080"),
        ("vllm", "http://127.0.0.1:8000"),
        ("lmstudio", "http://127.0.0.1:1234"),
        ("jan", "http://127.0.0.1:1337"),
    ],
)
def test_local_servers_are_found_where_they_listen(backend: str, base_url: str) -> None:
    service = service_of(f"backend = '{backend}'")
    assert service.endpoint == HttpEndpoint(base_url)
    assert service.kinds == ("llm.chat", "llm.generate")
    assert service.backend_id == backend


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["backend = 'openai-http'"], "base_url: is missing"),
        (
            ["backend = 'openai-http'", "base_url = 'localhost:1'"],
            "base_url: must be an http or https URL with a host",
        ),
        (
            ["backend = 'openai-http'", "base_url = 'http://169.254.169.254'"],
            "base_url: 169.254.169.254 is link-local",
        ),
        (
            ["backend = 'ollama'", "base_url = 'http://metadata.google.internal'"],
            "base_url: metadata.google.internal is a cloud metadata service",
        ),
        (
            ["backend = 'ollama'", "api_key_file = 'a'", "api_key_env = 'b'"],
            "api_key_env: cannot be given together with api_key_file",
        ),
        (["backend = 'ollama'", "max_tokens = 0"], "max_tokens: 0 is not within 1 to 1000000"),
        (["backend = 'ollama'", "argv = ['x']"], "argv: unknown key; "),
        (["backend = 'command'"], "argv: must name a program"),
        (["backend = 'command'", "argv = 'run me'"], "argv: must be a list of text, not text"),
        (["backend = 'command'", "argv = ['run', 3]"], "argv[1]: must be text, not a whole number"),
        (["backend = 'command'", "argv = ['x']", "base_url = 'http://x'"], "base_url: unknown key; "),
        (
            ["backend = 'command'", "argv = ['x']", "backend_id = 'openai'"],
            "backend_id: 'openai' is not one of ",
        ),
        (["backend = 'gpt'"], "backend: 'gpt' is not one of anthropic, claude-cli, "),
        (
            ["backend = 'ollama'", "kind = 'llm.sing'"],
            "kind: 'llm.sing' is not one of llm.chat, llm.generate",
        ),
        (["backend = 'ollama'", "kinds = ['llm.chat', 'llm.chat']"], "kinds[1]: 'llm.chat' is there twice"),
        (["backend = 'ollama'", "kinds = ['llm.chat', 'llm.sing']"], "kinds[1]: 'llm.sing' is not one of "),
        (
            ["backend = 'ollama'", "offer_scope = 'public'"],
            "offer_scope: 'public' is not one of private, team",
        ),
    ],
)
def test_services_that_cannot_be_used(lines: list[str], message: str) -> None:
    assert error_of(*lines).startswith(message)


@pytest.mark.parametrize(
    ("lines", "backend_id", "cost"),
    [
        (["backend = 'openai-http'", "base_url = 'http://localhost:1'"], "openai-http", "free"),
        (["backend = 'openai-http'", "base_url = 'http://[::1]:1'"], "openai-http", "free"),
        (["backend = 'openai-http'", "base_url = 'https://gpu.test'"], "openai-http", "metered"),
        (["backend = 'ollama'", "base_url = 'http://192.168.1.5:11434'"], "ollama", "metered"),
        (["backend = 'openai'", "base_url = 'http://127.0.0.1:1'"], "openai", "metered"),
        (["backend = 'command'", "argv = ['/opt/claude', '-p']"], "claude-cli", "subscription"),
        (["backend = 'command'", "argv = ['codex']", "backend_id = 'mlx'"], "codex-cli", "subscription"),
        (["backend = 'command'", "argv = ['env', 'A=1', 'claude', '-p']"], "claude-cli", "subscription"),
        (["backend = 'command'", "argv = ['sh', '-c', 'exec /opt/codex e']"], "codex-cli", "subscription"),
        (
            ["backend = 'command'", "argv = ['npx', '@anthropic-ai/claude-code@2']"],
            "claude-cli",
            "subscription",
        ),
        (["backend = 'claude-cli'", "argv = ['wrapped-claude']"], "claude-cli", "subscription"),
        (["backend = 'command'", "argv = ['cat']"], "llamacpp", "free"),
    ],
)
def test_what_costs_money_is_private(lines: list[str], backend_id: str, cost: str) -> None:
    service = service_of(*lines)
    assert (service.backend_id, service.cost, service.offer_scope) == (backend_id, cost, "private")

    shared = [*lines, "offer_scope = 'team'"]
    sure = [*shared, "acknowledge_cost = true", "ceiling_characters_per_day = 1000"]
    if cost == "free":
        assert service_of(*shared).offer_scope == "team"
    elif cost == "subscription":
        expected = "offer_scope: this back end is a subscription, which is its owner's alone"
        assert error_of(*shared) == error_of(*sure) == expected
    else:
        for half in (shared, sure[:-1], [*shared, sure[-1]]):
            assert error_of(*half).startswith("offer_scope: this back end is metered: ")
        service = service_of(*sure)
        assert (service.cost, service.offer_scope, service.ceiling) == ("metered", "team", 1000)


def test_a_subscription_behind_a_link_is_one(tmp_path: Path) -> None:
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o700)
    (tmp_path / "model").symlink_to(tmp_path / "claude")

    assert service_of("backend = 'command'", f"argv = ['{tmp_path}/model']").cost == "subscription"


def test_a_ceiling_belongs_to_what_is_shared_and_costs_money() -> None:
    lines = ["acknowledge_cost = true", "ceiling_characters_per_day = 1000"]

    assert service_of("backend = 'openai'", "base_url = 'https://x.test'", *lines).ceiling is None
    assert service_of("backend = 'ollama'", "offer_scope = 'team'", *lines).ceiling is None


@pytest.mark.parametrize("word", ["cost = 'free'", "backend_class = 'process'", "metered = false"])
def test_what_a_back_end_costs_cannot_be_configured(word: str) -> None:
    message = error_of("backend = 'openai'", "base_url = 'https://x.test'", word)

    assert message.startswith(f"{word.split(maxsplit=1)[0]}: unknown key")
