from durable_service.core.availability import Availability, Queue
from durable_service.core.definition import Driver, TaskKey
from durable_service.store.base import ClaimableQuery
from durable_service.store.timetable import Timetable, WaitingTasks

A, B, C = TaskKey("acme", "a"), TaskKey("acme", "b"), TaskKey("acme", "c")
MAIL, POST = Driver("mail", 1), Driver("post", 1)


def test_instants_first_then_ids() -> None:
    table = Timetable()
    for key, at_ms in ((C, 5), (B, 7), (A, 7)):
        table.put(key, at_ms)
    assert list(table) == [(5, C), (7, A), (7, B)]
    assert list(table.until(6)) == [(5, C)]
    table.put(C, 9)
    table.put(A, None)
    table.put(A, None)
    assert list(table) == [(7, B), (9, C)]
    assert len(table) == 2


def test_lines_of_several_drivers_are_one() -> None:
    waiting = WaitingTasks()
    waiting.put(A, MAIL, Availability(Queue.WORK, 3))
    waiting.put(B, POST, Availability(Queue.WORK, 2))
    waiting.put(C, None, Availability(Queue.WORK, 1))
    assert list(waiting.all(ClaimableQuery("acme"))) == [(1, C), (2, B), (3, A)]
    assert list(waiting.all(ClaimableQuery("acme", frozenset({MAIL, POST})))) == [(2, B), (3, A)]
    assert list(waiting.until(ClaimableQuery("acme"), 2)) == [(1, C), (2, B)]
    assert list(waiting.all(ClaimableQuery("acme", frozenset({Driver("mail", 2)})))) == []
    assert list(waiting.all(ClaimableQuery("other"))) == []


def test_a_task_waits_in_one_place() -> None:
    waiting = WaitingTasks()
    waiting.put(A, MAIL, Availability(Queue.WORK, 3))
    waiting.put(A, MAIL, Availability(Queue.RECOVERY, 4))
    assert list(waiting.all(ClaimableQuery("acme"))) == []
    assert list(waiting.all(ClaimableQuery("acme", queue=Queue.RECOVERY))) == [(4, A)]
    waiting.put(A, MAIL, None)
    waiting.put(A, MAIL, None)
    assert list(waiting.all(ClaimableQuery("acme", queue=Queue.RECOVERY))) == []
