"""A worker of the durable service, as a process of its own: it asks Alice's devices through the relay.

It is a process of the site too, and knows both services by their client libraries alone.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

# Run as a file, Python looks for modules beside it; the names here start at the repository.
ROOT = Path(__file__).resolve().parents[3]
sys.path[:1] = [str(ROOT), str(ROOT / "protos" / "gen" / "python")]

from durable_service.client import Client, NotClaimed, PrincipalKey, TaskContext, Worker  # noqa: E402
from relay_connector import RelayConnector, read_answer  # noqa: E402
from relay_service.client import ChatMessage, ChatPayload, Keys, Site  # noqa: E402

DRIVER = "ask@1"
TASK = "ask"
OWNER = "alice"
PATIENCE_MS = 600_000
AGAIN_SECONDS = 1.0


async def ask(context: TaskContext, relay: RelayConnector) -> str:
    """The handler: it runs from its start whenever the task is claimed."""
    print(f"runs, fence {context.fence}", flush=True)
    payload = ChatPayload([ChatMessage("user", str(context.input))])
    # Reckoned from what is the same in every run, as the action is the same in every run.
    deadline_at_ms = context.task.created_at_ms + PATIENCE_MS
    question = relay.ask("ask", payload, owner=OWNER, deadline_at_ms=deadline_at_ms)
    kept = await context.execute(question, relay)
    answer = await read_answer(context.records, kept)
    print(f"answered {json.dumps([answer.runner_id, answer.text])}", flush=True)
    return kept


async def settle(worker: Worker, relay: RelayConnector) -> None:
    """What somebody who finds the task does: the relay is asked what became of the question."""
    looked_up = ""
    while True:
        settled = await worker.recover(TASK, [relay])
        if isinstance(settled, NotClaimed):
            print(f"refused: {settled.reason}", flush=True)
            return
        (action,) = settled
        # Said once, however often it is looked up.
        if action.evidence_ref != looked_up:
            looked_up = action.evidence_ref or ""
            print(f"looked up: {action.id} {action.state} by {looked_up}", flush=True)
        if action.state != "unknown":
            return
        await asyncio.sleep(AGAIN_SECONDS)


async def serve(options: argparse.Namespace) -> None:
    keys, key = Keys.load(options.site_keys), PrincipalKey.load(options.key)
    async with (
        Site(options.relay, site_id=options.site, keys=keys) as site,
        Client(options.address, principal_id="worker", key=key) as client,
    ):
        relay = RelayConnector(site)
        worker = Worker(client, {DRIVER: lambda context: ask(context, relay)}, worker_id=options.name)
        if options.settle:
            await settle(worker, relay)
        await worker.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--relay", required=True)
    parser.add_argument("--site", required=True)
    parser.add_argument("--site-keys", type=Path, required=True)
    parser.add_argument("--settle", action="store_true")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
