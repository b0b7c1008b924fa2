"""Where calls ask the operator's policy, and how its refusals read."""

from typing import Final, TypeVar

import grpc
import structlog

from durable_service.admission import Admission, Admitted, Operation, OverQuota, Refused, TaskFacts
from durable_service.caller import Caller
from durable_service.core.step import noted
from durable_service.store.base import Mutation
from service_common.clocks import Clock
from service_common.deadlines import within
from service_common.errors import QuotaViolation, ServiceError

_log: Final = structlog.get_logger(__name__)

Outcome = TypeVar("Outcome")

ADMISSION_REFUSED: Final = "ADMISSION_REFUSED"
_DEADLINE_SECONDS: Final = 2.0
_POLICY_RETRY_MS: Final = 1_000
_QUOTA_RETRY_MS: Final = 10_000


class AdmissionDesk:
    """Asks the policy; without one everything is admitted, and nothing is written down about it."""

    def __init__(self, policy: Admission | None, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock

    @property
    def asks(self) -> bool:
        """Whether there is anybody to ask."""
        return self._policy is not None

    async def admit(self, operation: Operation, caller: Caller, task: TaskFacts) -> str | None:
        """The id of the decision that admits the operation; None when nobody decides.

        Raises:
            ServiceError: ADMISSION_REFUSED, QUOTA_EXCEEDED, POLICY_UNAVAILABLE.
        """
        if self._policy is None:
            return None
        try:
            answer = await within(
                self._clock, _DEADLINE_SECONDS, self._policy.decide(operation, caller, task)
            )
        except Exception as error:  # noqa: BLE001 - whatever a policy raises, it has not admitted anything
            _log.error("admission_failed", problem=type(error).__name__, decision=operation)
            raise _unavailable() from None
        if isinstance(answer, Admitted):
            return answer.decision_id
        _note(operation, caller, task, answer)
        raise _over_quota(answer) if isinstance(answer, OverQuota) else admission_refused()

    async def admits_waking(self, task: TaskFacts) -> bool:
        """Whether a worker may be told that a task can go on. A policy that fails loses a hint, no more."""
        if self._policy is None:
            return True
        try:
            answer = await within(
                self._clock, _DEADLINE_SECONDS, self._policy.decide(Operation.WAKE, None, task)
            )
        except Exception as error:  # noqa: BLE001 - as above
            _log.error("admission_failed", problem=type(error).__name__, decision=Operation.WAKE)
            return False
        if isinstance(answer, Admitted):
            return True
        _note(Operation.WAKE, None, task, answer)
        return False


def journaled(mutate: Mutation[Outcome], decision_id: str | None) -> Mutation[Outcome]:
    """The command, whose last entry in the journal names the decision that admitted it."""
    if decision_id is None:
        return mutate
    facts = {"admissionId": decision_id}
    return lambda record, now_ms: noted(mutate(record, now_ms), facts)


def admission_refused() -> ServiceError:
    """The policy said no. Why is nothing that the caller learns."""
    return ServiceError(
        grpc.StatusCode.PERMISSION_DENIED, ADMISSION_REFUSED, "the operator's policy does not admit this"
    )


def _unavailable() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        "POLICY_UNAVAILABLE",
        "the operator's policy did not answer; repeat the request with the same ids",
        retry_after_ms=_POLICY_RETRY_MS,
    )


def _over_quota(answer: OverQuota) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "QUOTA_EXCEEDED",
        "the tenant has its most open tasks; repeat the request when some have ended",
        retry_after_ms=_QUOTA_RETRY_MS,
        quota=QuotaViolation("open tasks of the tenant", f"at most {answer.most}"),
    )


def _note(operation: Operation, caller: Caller | None, task: TaskFacts, answer: Refused | OverQuota) -> None:
    _log.warning(
        "admission_refused",
        caller="" if caller is None else caller.id,
        tenant=task.tenant_id,
        task=task.task_id,
        decision=operation,
        problem=answer.why if isinstance(answer, Refused) else f"the quota is {answer.most} open tasks",
    )
