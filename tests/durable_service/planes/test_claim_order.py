from random import Random

from durable_service.core.definition import TaskKey
from durable_service.planes.claim_order import ClaimOrder

WAITING = [TaskKey("acme", f"task-{number}") for number in range(10)]


class Last(Random):
    """Always draws the greatest number."""

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return bounds[0] - 1


def test_the_oldest_is_first_while_nobody_else_is_after_it() -> None:
    assert list(ClaimOrder(Last()).of(WAITING)) == WAITING


def test_whoever_comes_second_takes_any_of_the_others_from_then_on() -> None:
    order = ClaimOrder(Last())
    trying = order.of(WAITING)
    assert next(trying) == WAITING[0]
    order.lost()
    assert list(trying) == WAITING[:0:-1]


def test_so_do_the_claims_that_follow_until_nobody_was_faster_for_a_while() -> None:
    order = ClaimOrder(Last())
    order.lost()
    firsts = [next(order.of(WAITING)) for _ in range(21)]
    assert firsts == [WAITING[9]] * 19 + [WAITING[0]] * 2


def test_whoever_comes_second_looks_at_more_of_them() -> None:
    order = ClaimOrder(Last())
    assert order.widened(12) == 12
    order.lost()
    assert order.widened(12) == 48


def test_each_is_tried_once() -> None:
    order = ClaimOrder(Random(1))
    order.lost()
    tried = list(order.of(WAITING))
    assert (len(tried), set(tried)) == (10, set(WAITING))
    assert tried != WAITING
