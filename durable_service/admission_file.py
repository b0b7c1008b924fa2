"""The rules of admission as a JSON file: strict reading, and following what changes in it."""

import asyncio
import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson
import structlog

from durable_service.admission import Answer, Operation, TaskFacts
from durable_service.admission_rules import AdmissionRules, TenantRules
from durable_service.caller import Caller
from durable_service.core.limits import MAXIMUM_SAFE_INTEGER
from service_common.clocks import Clock
from service_common.metrics import Metrics

_log: Final = structlog.get_logger(__name__)

MAXIMUM_FILE_BYTES: Final = 1_048_576
_POLL_SECONDS: Final = 0.5
_VERSION_DIGITS: Final = 16
_LISTS: Final = frozenset({"drivers", "manifests", "extensions", "reserved_extensions"})
_NUMBERS: Final = frozenset({"max_attempts", "max_tokens", "max_cost_micros", "open_tasks"})


class AdmissionError(ValueError):
    """The rules cannot be used. The text has one line for each problem."""


def load_admission(path: Path) -> AdmissionRules:
    """Reads a file.

    Raises:
        AdmissionError: it cannot be read, or something in it is wrong.
    """
    return parse_admission(_read(path), str(path))


def parse_admission(content: bytes, source: str = "admission") -> AdmissionRules:
    """Reads `{"default": {...}, "tenants": {"acme": {...}}}`; a tenant has the default where it says nothing.

    Raises:
        AdmissionError: everything that is wrong, a line for each.
    """
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise AdmissionError(f"{source}:{error.lineno}: is not JSON: {error.msg}") from None
    if not isinstance(document, dict) or not set(document) <= {"default", "tenants"}:
        raise AdmissionError(f'{source}: must be an object with the members "default" and "tenants" alone')
    tenants = document.get("tenants", {})
    if not isinstance(tenants, dict):
        raise AdmissionError(f"{source}: tenants: must be an object, a member for each tenant")
    problems: list[str] = []
    default = _rules("default", document.get("default", {}), TenantRules(), problems)
    each = {name: _rules(f"tenants.{name}", row, default, problems) for name, row in tenants.items()}
    if problems:
        raise AdmissionError("\n".join(f"{source}: {problem}" for problem in problems))
    version = "rules:" + hashlib.sha256(content).hexdigest()[:_VERSION_DIGITS]
    return AdmissionRules(version, default, MappingProxyType(each))


class FileAdmission:
    """Rules that follow a file; a broken one leaves the last good ones in force.

    Attributes:
        problem: what is wrong with the newest content, in one line; None when it is in force.
    """

    def __init__(self, path: Path, clock: Clock, *, metrics: Metrics | None = None) -> None:
        """Loads the file.

        Raises:
            AdmissionError: there are no usable rules to begin with.
        """
        self.path = path
        self.problem: str | None = None
        self._clock = clock
        self._seen: bytes | None = _read(path)
        self._rules = parse_admission(self._seen, str(path))
        self._broken_gauge = (metrics or Metrics()).gauge(
            "durable_admission_broken", "1 while the newest rules of admission cannot be used"
        )

    async def decide(self, operation: Operation, caller: Caller | None, task: TaskFacts) -> Answer:
        """The answer of the rules as they stand now."""
        return await self._rules.decide(operation, caller, task)

    async def watch(self) -> None:
        """Follows the file until cancelled, looking at it twice a second."""
        while True:
            await self._clock.sleep(_POLL_SECONDS)
            await self.poll()

    async def poll(self) -> None:
        """Looks at the file, and puts what it holds in force if that is new and sound."""
        # The content and no time stamp: the file is small, and two edits may share a stamp.
        content: bytes | None = None
        try:
            content = await asyncio.to_thread(_read, self.path)
            if content == self._seen:
                return
            rules = parse_admission(content, str(self.path))
        except AdmissionError as error:
            self._reject(content, str(error).splitlines()[0])
            return
        self._seen, self._rules, self.problem = content, rules, None
        self._broken_gauge.set(0)
        _log.info("admission_replaced", path=str(self.path), decision=rules.version)

    def _reject(self, content: bytes | None, problem: str) -> None:
        # The same content is complained about once, however often it is seen.
        if content == self._seen and self.problem == problem:
            return
        self._seen, self.problem = content, problem
        self._broken_gauge.set(1)
        _log.error("admission_broken", path=str(self.path), problem=problem)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAXIMUM_FILE_BYTES + 1)
    except OSError as error:
        raise AdmissionError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAXIMUM_FILE_BYTES:
        raise AdmissionError(f"{path}: has more than {MAXIMUM_FILE_BYTES} bytes: is it the right file?")
    return content


def _rules(path: str, row: object, default: TenantRules, problems: list[str]) -> TenantRules:
    if not isinstance(row, dict):
        problems.append(f"{path}: must be an object")
        return default
    return dataclasses.replace(default, **_members(path, row, problems))


def _members(path: str, row: Mapping[str, object], problems: list[str]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in row.items():
        if name in _LISTS:
            if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
                members[name] = frozenset(value)
            else:
                problems.append(f"{path}.{name}: must be a list of strings, none of them empty")
        elif name in _NUMBERS:
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAXIMUM_SAFE_INTEGER:
                members[name] = value
            else:
                problems.append(f"{path}.{name}: must be a whole number from 0 to {MAXIMUM_SAFE_INTEGER}")
        else:
            problems.append(f"{path}.{name}: is not a rule; rules are {', '.join(sorted(_LISTS | _NUMBERS))}")
    return members
