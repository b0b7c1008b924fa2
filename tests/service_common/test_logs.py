import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from service_common.logs import LOG_KEYS, configure_logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # Not emptied by configuring, which would close the handlers of the test runner.
    root.handlers = []
    yield
    logging.captureWarnings(capture=False)
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    structlog.get_logger("sealwork.test").info("served", method="/a/B", port=7443, ready=True)
    (entry,) = entries(stream)
    timestamp = entry.pop("timestamp")
    assert timestamp.endswith("Z")
    assert entry == {
        "event": "served",
        "level": "info",
        "logger": "sealwork.test",
        "method": "/a/B",
        "port": 7443,
        "ready": True,
    }


def test_a_key_that_is_not_listed_is_dropped_with_its_value() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    structlog.get_logger("sealwork.test").info("served", prompt="secret", envelope=b"sealed", port=1)
    (entry,) = entries(stream)
    assert entry["dropped_keys"] == 2
    assert entry["port"] == 1
    for text in ("secret", "sealed", "prompt", "envelope"):
        assert text not in stream.getvalue()


def test_a_bound_context_is_held_to_the_list_too() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    with structlog.contextvars.bound_contextvars(session_id="s1", prompt="secret"):
        structlog.get_logger("sealwork.test").info("served")
    (entry,) = entries(stream)
    assert entry["session_id"] == "s1"
    assert "secret" not in stream.getvalue()


def test_a_service_lists_keys_of_its_own() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream, keys=LOG_KEYS | {"site"})
    structlog.get_logger("sealwork.test").info("served", site="example")
    assert entries(stream)[0]["site"] == "example"


def test_a_value_of_a_strange_type_is_named_by_its_type() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    structlog.get_logger("sealwork.test").info("served", code=object(), reason=b"sealed")
    (entry,) = entries(stream)
    assert entry["code"] == "<object>"
    assert entry["reason"] == "<bytes>"


def test_an_exception_is_shown_without_its_text() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    try:
        try:
            raise KeyError("inner secret")
        except KeyError as inner:
            raise ValueError("outer secret") from inner
    except ValueError:
        structlog.get_logger("sealwork.test").exception("failed")
    (entry,) = entries(stream)
    assert "secret" not in entry["exception"].replace('"inner secret"', "").replace('"outer secret"', "")
    lines = entry["exception"].splitlines()
    assert "builtins.KeyError" in lines
    assert "which led to" in lines
    assert lines[-1] == "builtins.ValueError"
    assert any("test_an_exception_is_shown_without_its_text" in line for line in lines)


def test_the_members_of_a_group_are_shown() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    group = ExceptionGroup("secret", [ValueError("secret"), TypeError("secret")])
    structlog.get_logger("sealwork.test").error("failed", exc_info=group)
    (entry,) = entries(stream)
    assert entry["exception"].splitlines() == [
        "builtins.ExceptionGroup",
        "member 1",
        "builtins.ValueError",
        "member 2",
        "builtins.TypeError",
    ]


def test_development_shows_the_text_of_exceptions() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream, exception_text=True)
    structlog.get_logger("sealwork.test").error("failed", exc_info=ValueError("what happened"))
    assert entries(stream)[0]["exception"] == "ValueError: what happened"


def test_libraries_log_through_the_same_rules() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    library = logging.getLogger("some.library")
    try:
        raise ValueError("secret")
    except ValueError:
        library.exception("it %s", "failed", extra={"prompt": "hidden"})
    (entry,) = entries(stream)
    assert entry["event"] == "it failed"
    assert entry["logger"] == "some.library"
    assert entry["level"] == "error"
    assert entry["exception"].endswith("builtins.ValueError")
    assert "hidden" not in stream.getvalue()


def test_warnings_are_logged() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("careful", UserWarning, stacklevel=1)
        logging.captureWarnings(capture=False)
    assert "careful" in entries(stream)[0]["event"]


def test_lines_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    configure_logs("WARNING", stream=stream)
    structlog.get_logger("sealwork.test").info("quiet")
    logging.getLogger("some.library").info("quiet")
    structlog.get_logger("sealwork.test").warning("loud")
    assert [entry["event"] for entry in entries(stream)] == ["loud"]


def test_a_terminal_gets_a_line_to_read() -> None:
    stream = Terminal()
    configure_logs(stream=stream)
    structlog.get_logger("sealwork.test").warning("served", port=7443, prompt="secret")
    text = stream.getvalue()
    assert "served" in text
    assert "7443" in text
    assert not text.startswith("{")
    assert "secret" not in text
