"""A task on a terminal, and as JSON for programs."""

from dataclasses import asdict
from typing import Any, Final

from durable_service.client.json_text import encode_json
from durable_service.client.task_view import Task
from durable_service.commands.service_calls import instant, printable, show_fields

TASK_COLUMNS: Final = ("task", "state", "driver", "created", "changed", "conditions")

_INPUT_CHARACTERS: Final = 2_000


def task_row(task: Task) -> tuple[str, ...]:
    """Return a task's line in a table."""
    return (
        task.id,
        task.state.value,
        _driver(task),
        instant(task.created_at_ms),
        instant(task.updated_at_ms),
        _conditions(task),
    )


def task_document(task: Task) -> dict[str, Any]:
    """Return everything that is known of a task, for programs; what is not known is left out."""
    document = {name: value for name, value in asdict(task).items() if value not in (None, "", (), {}, 0)}
    document["state"] = task.state.value
    document["conditions"] = sorted(each.value for each in task.conditions)
    if task.definition is not None:
        document["definition"].pop("input_json")
        if task.definition.input_json is not None:
            document["definition"]["input"] = task.definition.input
    return document


def show_task(task: Task) -> None:
    """Print a task for people."""
    definition, usage, lease = task.definition, task.usage, task.lease
    fields: list[tuple[str, str | None]] = [
        ("task", task.id),
        ("state", task.state.value),
        ("conditions", _conditions(task)),
        ("driver", _driver(task)),
        ("created", instant(task.created_at_ms)),
        ("changed", instant(task.updated_at_ms)),
        ("not before", instant(task.not_before_ms)),
        ("result", task.result_ref),
        ("failure", task.failure),
        ("cancelled because", task.cancel_reason),
        ("approvals pending", " ".join(task.pending_approval_ids)),
        ("actor", task.actor_id),
        ("session", task.session_id),
    ]
    if usage is not None and definition is not None:
        budget = definition.budget
        fields += [
            ("attempts", f"{usage.attempts} of {budget.max_attempts}"),
            ("tokens", f"{usage.reserved_tokens} of {budget.max_tokens}"),
            ("cost", f"{usage.reserved_cost_micros} of {budget.max_cost_micros} millionths"),
        ]
    if definition is not None and definition.input_json is not None:
        fields.append(("input", encode_json(definition.input).decode()[:_INPUT_CHARACTERS]))
    if lease is not None:
        fields.append(("held by", f"{lease.worker_id}, until {instant(lease.expires_at_ms)}"))
    fields += [
        ("artifact", f"{each.id}, {each.size_bytes} bytes of {each.media_type}") for each in task.artifacts
    ]
    fields += [
        ("events", str(task.latest_event)),
        ("revision", str(task.revision)),
        ("digest", task.definition_digest),
    ]
    show_fields((name, value and printable(value)) for name, value in fields)


def _driver(task: Task) -> str:
    driver = None if task.definition is None else task.definition.driver
    return "" if driver is None else f"{driver.id}@{driver.version}"


def _conditions(task: Task) -> str:
    return " ".join(sorted(each.value for each in task.conditions))
