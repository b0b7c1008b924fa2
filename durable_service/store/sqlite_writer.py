"""The one thread that writes: what waits at a moment is committed together, by one synchronisation."""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from durable_service.core.definition import TaskKey
from durable_service.core.errors import DomainError
from durable_service.store.base import StoreFault, StoreLimits, StoreUnavailable, TaskChange
from durable_service.store.clock import StoreClock
from durable_service.store.sqlite_file import fault
from durable_service.store.sqlite_transaction import Stored, Transaction

Result = TypeVar("Result")
Work = Callable[[Transaction], Any]

_LARGEST_BATCH = 256
_KNOWN_TASKS = 20_000
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Order:
    """One piece of work and the caller who waits for it."""

    work: Work
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: object = None
    error: Exception | None = None


class GroupWriter:
    """Runs work in order, several pieces to a commit. Nothing is answered before it is on the disk.

    A piece that is refused has written nothing, so it does not disturb the others. When the database itself
    fails, the commit is undone and each piece is tried alone: one damaged task does not stop the rest.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: StoreClock,
        limits: StoreLimits,
        told: Callable[[Sequence[TaskChange]], None],
    ) -> None:
        """Start the thread.

        Args:
            told: called on the event loop with what was committed, before anybody is answered.
        """
        self._connection = connection
        self._clock = clock
        self._limits = limits
        self._told = told
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        # Ordered: in a dict the way to the first entry leads past all that were removed before it.
        self._known: OrderedDict[TaskKey, Stored] = OrderedDict()
        self._closed = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="task-store-writer", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[Transaction], Result]) -> Result:
        """Runs one piece of work and waits until it is committed.

        Raises:
            DomainError: what the work refuses; `StoreUnavailable` when the database fails.
        """
        if self._closed:
            raise StoreUnavailable(StoreFault.CLOSED, "the store is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        self._orders.put(_Order(work, answer, loop))
        return await answer

    @property
    def failing(self) -> bool:
        """Whether the database has failed the last piece of work that wrote. Readable from any thread."""
        return self._failing

    def known(self, key: TaskKey) -> Stored | None:
        """The task as it was committed last, when it was used lately. Callable from any thread."""
        return self._known.get(key)

    async def close(self) -> None:
        """Finishes what was ordered, then ends the thread."""
        if not self._closed:
            self._closed = True
            self._orders.put(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._take()
            changes: list[TaskChange] = []
            self._carry_out(batch, changes)
            self._hand_over(batch, changes)

    def _take(self) -> tuple[list[_Order], bool]:
        """Waits for work, then takes all that is there."""
        batch: list[_Order] = []
        try:
            order = self._orders.get()
            while order is not None:
                batch.append(order)
                if len(batch) == _LARGEST_BATCH:
                    return batch, False
                order = self._orders.get_nowait()
        except queue.Empty:
            return batch, False
        return batch, True

    def _carry_out(self, batch: list[_Order], changes: list[TaskChange]) -> None:
        if not batch:
            return
        try:
            changes += self._commit(batch)
        except Exception as error:  # noqa: BLE001 - each failure is handed to whoever asked for it
            self._undo()
            if len(batch) > 1:
                for order in batch:
                    self._carry_out([order], changes)
            elif isinstance(error, sqlite3.Error):
                self._failing = True
                batch[0].error = fault(error)
            else:
                batch[0].error = error

    def _commit(self, batch: list[_Order]) -> list[TaskChange]:
        self._connection.execute("BEGIN IMMEDIATE")
        transaction = Transaction(self._connection, self._known, self._limits, self._clock.now_ms())
        for order in batch:
            order.error = None
            try:
                order.result = order.work(transaction)
            except StoreUnavailable:
                raise
            except DomainError as refusal:
                order.error = refusal
        if transaction.wrote:
            transaction.note_progress()
        self._connection.execute("COMMIT")
        # A commit of nothing succeeds on a full disk too.
        self._failing = self._failing and not transaction.wrote
        self._learn(transaction)
        return transaction.changes

    def _learn(self, transaction: Transaction) -> None:
        # Only what is committed may be known: readers are answered from here.
        self._known.update(transaction.loaded)
        for key, stored in transaction.staged.items():
            if stored is None:
                self._known.pop(key, None)
            else:
                self._known[key] = stored
        while len(self._known) > _KNOWN_TASKS:
            self._known.popitem(last=False)

    def _undo(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            _log.error("the store could not undo a failed commit")

    def _hand_over(self, batch: list[_Order], changes: list[TaskChange]) -> None:
        loops = {order.loop for order in batch}
        for loop in loops:
            orders = [order for order in batch if order.loop is loop]
            try:
                loop.call_soon_threadsafe(self._settle, orders, changes)
            except RuntimeError:
                # The loop is gone, and with it everybody who waited.
                continue
            changes = []

    def _settle(self, orders: list[_Order], changes: list[TaskChange]) -> None:
        try:
            self._told(changes)
        finally:
            for order in orders:
                if order.answer.done():
                    continue
                if order.error is None:
                    order.answer.set_result(order.result)
                else:
                    order.answer.set_exception(order.error)
