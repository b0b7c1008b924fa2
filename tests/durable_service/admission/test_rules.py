"""Rules from a file: what they say of tasks, what is wrong with a file, and that it is followed."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from durable_service.admission import Admitted, Answer, Operation, OverQuota, Refused, TaskFacts
from durable_service.admission_file import AdmissionError, FileAdmission, parse_admission
from durable_service.cli import durable_service
from durable_service.core.definition import Budget, Driver
from durable_service.principals_file import format_principals
from service_common.clocks import ManualClock
from service_common.metrics import Metrics
from tests.durable_service.durable_fixture import PRINCIPALS, START_MS, serving
from tests.durable_service.durable_fixture import creation as task_request


def facts(**changes: Any) -> TaskFacts:
    given: dict[str, Any] = {
        "tenant_id": "acme",
        "actor_id": "alice",
        "task_id": "task",
        "driver": Driver("mail", 1),
        "manifest_hash": "manifest",
        "policy_revision": 1,
        "budget": Budget(3, 10, 20),
    }
    return TaskFacts(**(given | changes))


async def answer(rules: dict[str, Any], operation: Operation = Operation.CREATE, **changes: Any) -> Answer:
    content = json.dumps({"default": rules}).encode()
    return await parse_admission(content).decide(operation, None, facts(**changes))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"drivers": ["post"]}, {}, "the driver is not allowed"),
    ({"drivers": ["mail@2"]}, {}, "the driver is not allowed"),
    ({"drivers": ["mail"]}, {"driver": None}, "the driver is not allowed"),
    ({"manifests": ["other"]}, {}, "the manifest is not allowed"),
    ({"max_attempts": 2}, {}, "max_attempts of the budget is above 2"),
    ({"max_tokens": 9}, {}, "max_tokens of the budget is above 9"),
    ({"max_cost_micros": 19}, {}, "max_cost_micros of the budget is above 19"),
    ({"extensions": ["app.*"]}, {"extensions": frozenset({"else"})}, "an extension is not allowed"),
    ({"reserved_extensions": ["host.*"]}, {"extensions": frozenset({"host.a"})}, "an extension is reserved"),
]
ADMITTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"driver": None, "extensions": frozenset({"any"}), "open_tasks": 1_000_000}),
    ({"drivers": ["mail"]}, {}),
    ({"drivers": ["mail@1"]}, {}),
    ({"drivers": ["*"]}, {"driver": None}),
    ({"manifests": ["manifest"]}, {}),
    ({"max_attempts": 3, "max_tokens": 10, "max_cost_micros": 20}, {}),
    ({"extensions": ["app.*", "one"]}, {"extensions": frozenset({"app.a", "one"})}),
    ({"open_tasks": 5}, {"open_tasks": 4}),
]


@pytest.mark.parametrize(("rules", "changes", "why"), REFUSED)
async def test_refused(rules: dict[str, Any], changes: dict[str, Any], why: str) -> None:
    assert await answer(rules, **changes) == Refused(why)


@pytest.mark.parametrize(("rules", "changes"), ADMITTED)
async def test_admitted(rules: dict[str, Any], changes: dict[str, Any]) -> None:
    assert isinstance(await answer(rules, **changes), Admitted)


async def test_the_last_place_is_taken() -> None:
    assert await answer({"open_tasks": 5}, open_tasks=5) == OverQuota(5)
    assert isinstance(await answer({"open_tasks": 5}, Operation.CLAIM, open_tasks=5), Admitted)


@pytest.mark.parametrize(
    "operation", [Operation.CLAIM, Operation.BEGIN_DISPATCH, Operation.DECIDE, Operation.WAKE]
)
async def test_what_was_admitted_goes_on_while_its_driver_is_allowed(operation: Operation) -> None:
    assert isinstance(await answer({"max_attempts": 1}, operation), Admitted)
    assert await answer({"drivers": []}, operation) == Refused("the driver is not allowed")


async def test_what_has_happened_may_always_be_settled() -> None:
    assert isinstance(await answer({"drivers": [], "manifests": []}, Operation.RECOVER), Admitted)


async def test_a_tenant_has_the_default_where_it_says_nothing() -> None:
    rules = parse_admission(
        b'{"default": {"max_attempts": 2, "drivers": ["mail"]}, "tenants": {"acme": {"max_attempts": 3}}}'
    )
    ours = await rules.decide(Operation.CREATE, None, facts())
    other = await rules.decide(Operation.CREATE, None, facts(tenant_id="evil"))
    driver = await rules.decide(Operation.CREATE, None, facts(driver=Driver("post", 1)))

    # The first 16 digits of the content's digest.
    assert ours == Admitted("rules:ed3bda8c5647af96")
    assert other == Refused("max_attempts of the budget is above 2")
    assert driver == Refused("the driver is not allowed")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "file:1: is not JSON"),
        (b"[]", 'file: must be an object with the members "default" and "tenants" alone'),
        (b'{"rules": {}}', 'file: must be an object with the members "default" and "tenants" alone'),
        (b'{"tenants": []}', "file: tenants: must be an object, a member for each tenant"),
        (b'{"default": 1}', "file: default: must be an object"),
        (b'{"default": {"drivers": "mail"}}', "file: default.drivers: must be a list of strings"),
        (
            b'{"tenants": {"a": {"max_tokens": -1}}}',
            "file: tenants.a.max_tokens: must be a whole number from 0",
        ),
        (b'{"default": {"open_tasks": true}}', "file: default.open_tasks: must be a whole number"),
        (
            b'{"default": {"driver": []}}',
            "file: default.driver: is not a rule; rules are drivers,",
        ),
    ],
)
def test_what_is_wrong_with_a_file(content: bytes, problem: str) -> None:
    with pytest.raises(AdmissionError) as error:
        parse_admission(content, "file")
    assert str(error.value).startswith(problem)


async def test_a_broken_file_leaves_the_last_good_rules(tmp_path: Path) -> None:
    path = tmp_path / "admission.json"
    path.write_bytes(b'{"default": {"drivers": []}}')
    metrics = Metrics()
    rules = FileAdmission(path, ManualClock(START_MS), metrics=metrics)
    for break_it in (lambda: path.write_bytes(b"{"), path.unlink):
        break_it()
        await rules.poll()
        assert rules.problem is not None
        assert await rules.decide(Operation.CREATE, None, facts()) == Refused("the driver is not allowed")
        assert metrics.value("durable_admission_broken") == 1
    path.write_bytes(b'{"default": {"drivers": ["mail"]}}')
    await rules.poll()

    assert rules.problem is None
    assert isinstance(await rules.decide(Operation.CREATE, None, facts()), Admitted)
    assert metrics.value("durable_admission_broken") == 0


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_tenant_has_no_more_open_tasks_than_it_may(store: str, tmp_path: Path) -> None:
    database = tmp_path / "tasks.db" if store == "sqlite" else None
    rules = parse_admission(b'{"tenants": {"acme": {"open_tasks": 2}}}')
    async with serving(database=database, admission=rules) as service:
        await service.create("a")
        await service.create("b")
        refusal = await service.party("alice").refused("CreateTask", task_request("c"))
        assert (refusal.code.name, refusal.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
        assert refusal.retry_after_ms == 10_000
        # A repeat opens nothing, and another tenant has places of its own.
        assert (await service.create("a")).created is False
        await service.create("c", caller="eve")
        await service.call("alice", "CancelTask", task_id="a")
        await service.create("c")
        assert (
            await service.party("alice").refused("CreateTask", task_request("d"))
        ).reason == "QUOTA_EXCEEDED"


async def test_tasks_of_before_a_restart_are_counted(tmp_path: Path) -> None:
    rules = parse_admission(b'{"default": {"open_tasks": 1}}')
    async with serving(database=tmp_path / "tasks.db") as service:
        await service.create("a")
    async with serving(database=tmp_path / "tasks.db", admission=rules) as service:
        refusal = await service.party("alice").refused("CreateTask", task_request("b"))
        assert refusal.reason == "QUOTA_EXCEEDED"


def test_a_broken_file_is_found_before_serving(tmp_path: Path) -> None:
    principals, path = tmp_path / "principals.json", tmp_path / "admission.json"
    principals.write_bytes(format_principals(PRINCIPALS))
    path.write_bytes(b'{"default": {"drivers": 1}}')
    arguments = ["check-config", "--principals", str(principals), "--admission", str(path)]
    result = CliRunner().invoke(durable_service, arguments)

    assert result.exit_code == 2
    assert f"Error: {path}: default.drivers: must be a list of strings" in result.output
