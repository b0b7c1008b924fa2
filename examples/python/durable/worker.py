"""A worker that places orders: priced first, approved when they are dear, and never placed twice.

    python examples/python/durable/worker.py --orders http://127.0.0.1:8090/orders

DURABLE_ADDRESS, DURABLE_PRINCIPAL and DURABLE_KEY say where the service is and as whom to work.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from durable_service.client import (
    ActionInput,
    ActionRejectedError,
    ApprovalNeed,
    Client,
    DurableError,
    PrincipalKey,
    RunReport,
    Stopped,
    TaskContext,
    Worker,
)
from durable_service.client.connectors import HttpConnector

DEAR_CENTS = 5_000
APPROVAL_MS = 3_600_000


class Orders:
    """The handler. It runs from its start each time, and finds what it did before."""

    def __init__(self, connector: HttpConnector, approver: str) -> None:
        self.connector = connector
        self.approver = approver

    async def place(self, context: TaskContext) -> str | Stopped:
        wanted = context.input
        if not isinstance(wanted, dict):
            raise TypeError("the input is an object: item, pieces, cents")
        price = int(str(wanted["cents"])) * int(str(wanted.get("pieces", 1)))
        # Counted once, however often this runs: the first reservation of a run is always the same one.
        await context.reserve(cost_micros=price * 10_000)
        need = None
        if price >= DEAR_CENTS:
            need = ApprovalNeed(self.approver, int(time.time() * 1000) + APPROVAL_MS)
        order = ActionInput("place", self.connector.destination, wanted, need)
        try:
            # The intent is written down first. A pending approval ends this run here, and the next one begins
            # once it is decided.
            place = await context.execute(order, self.connector)
        except ActionRejectedError as error:
            await context.records.append("order.refused", {"why": error.rejection.value})
            return Stopped()
        await context.records.append("order.placed", {"place": place}, event_id="placed")
        return place


def told(report: RunReport) -> None:
    print(f"{report.task_id}: {report.end.value}", flush=True)


async def serve(options: argparse.Namespace) -> None:
    connector = HttpConnector(options.orders, version="orders@1", lookup_url=options.orders + "/{key}")
    key = PrincipalKey.load(options.key)
    async with Client(options.address, principal_id=options.principal, key=key) as client:
        # With its connectors a worker asks by itself what has become of an order that another worker was
        # placing when it died.
        worker = Worker(
            client,
            {"order@1": Orders(connector, options.approver).place},
            connectors=[connector],
            on_end=told,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(
                number, lambda: asyncio.ensure_future(worker.stop())
            )
        print(f"worker {worker.worker_id} is working", flush=True)
        await worker.run()
    await connector.close()


def main() -> int:
    environment = os.environ.get
    parser = argparse.ArgumentParser(description="Places orders for tasks of the driver order@1.")
    parser.add_argument("--orders", default="http://127.0.0.1:8090/orders", metavar="URL")
    parser.add_argument("--approver", default="boss", metavar="ACTOR", help="Who approves dear orders.")
    parser.add_argument("--address", default=environment("DURABLE_ADDRESS", "127.0.0.1:7434"))
    parser.add_argument("--principal", default=environment("DURABLE_PRINCIPAL", "worker"))
    parser.add_argument("--key", type=Path, default=Path(environment("DURABLE_KEY", "worker.key")))
    try:
        asyncio.run(serve(parser.parse_args()))
    except (DurableError, OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
