"""The worker that the documentation shows, run as it stands against a service and a remote side."""

import re
from pathlib import Path
from typing import Any

import httpx

from durable_service.client import Driver, NewTask, TaskState
from durable_service.client.connectors import HttpConnector
from tests.durable_service.client.real_service import real_service

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "durable-workers.md"


async def test_the_worker_of_the_documentation_works() -> None:
    [text] = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    shown: dict[str, Any] = {"__name__": "shown"}
    exec(compile(text, "durable-workers.md", "exec"), shown)
    seen: list[httpx.Request] = []

    def remote(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, headers={"Location": "/contacts/7"})

    client = httpx.AsyncClient(transport=httpx.MockTransport(remote))
    shown["connector"] = HttpConnector(shown["CRM"], version="crm@1", client=client)
    async with real_service() as service:
        alice = await service.client()
        await service.worker(shown["welcome"])
        await alice.tasks.create(NewTask("t-1", driver=Driver("mail", 1), input="Bob"))
        ended, _ = await alice.tasks.wait("t-1")
        assert (ended.state, ended.result_ref) == (TaskState.COMPLETED, "/contacts/7")
        assert [request.content for request in seen] == [b'{"text":"Welcome, Bob!"}']
        assert ended.usage is not None
        assert ended.usage.reserved_tokens == 500
