"""The two kinds of party that call the published relay, one signed request a call."""

from collections.abc import Mapping, Sequence
from time import time
from typing import Any

import orjson

from bench.peer_relay.http import ConnectionPool
from bench.peer_relay.party import Party
from bench.variant import VariantFailedError

PROTOCOL_VERSION = "2"
_NO_LEASES: Sequence[Mapping[str, str]] = ()


class RefusedError(VariantFailedError):
    """The relay refused a call."""

    def __init__(self, endpoint: str, status: int, body: bytes) -> None:
        super().__init__(f"{endpoint} answered {status}: {body[:200].decode(errors='replace')}")
        self.status = status


def now_ms() -> int:
    """Wall time in epoch milliseconds."""
    return int(time() * 1000)


class _Caller:
    _header: str

    def __init__(self, party: Party, pool: ConnectionPool) -> None:
        self.party = party
        self._pool = pool

    def close(self) -> None:
        self._pool.close()

    async def _call(self, method: str, path: str, endpoint: str, body: bytes) -> Any:
        issued_at = now_ms()
        signature = self.party.request_signature(endpoint, issued_at, body)
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{self._header}: {self.party.caller_id}\r\n"
            f"x-byollm-issued-at: {issued_at}\r\nx-byollm-signature: {signature}\r\n\r\n"
        )
        status, answer = await self._pool.exchange(head.encode() + body)
        if status != 200:
            raise RefusedError(endpoint, status, answer)
        return orjson.loads(answer)


class SiteCaller(_Caller):
    """A site's back end."""

    _header = "x-byollm-site"

    async def enqueue(self, stub: Mapping[str, Any]) -> None:
        await self._post("enqueue", {"stub": stub})

    async def pending(self) -> list[dict[str, Any]]:
        """Jobs that wait for their payload, and the device that claimed each."""
        return await self._list("pending")

    async def payload(self, job_id: str, envelope: Mapping[str, Any]) -> None:
        await self._post("payload", {"jobId": job_id, "envelope": envelope})

    async def cancel(self, job_id: str) -> None:
        await self._post("cancel", {"jobId": job_id})

    async def results(self) -> list[dict[str, Any]]:
        """Every finished job of this site that has not expired; there is no way to ask for less."""
        return await self._list("results")

    async def _post(self, operation: str, fields: Mapping[str, Any]) -> None:
        request = {"protocolVersion": PROTOCOL_VERSION, "siteId": self.party.caller_id, **fields}
        await self._call("POST", f"/relay/site/{operation}", f"site/{operation}", orjson.dumps(request))

    async def _list(self, operation: str) -> list[dict[str, Any]]:
        query = f"siteId={self.party.caller_id}&protocolVersion={PROTOCOL_VERSION}"
        answer = await self._call("GET", f"/relay/site/{operation}?{query}", f"site/{operation}", b"")
        jobs: list[dict[str, Any]] = answer["jobs"]
        return jobs


class DeviceCaller(_Caller):
    """A daemon."""

    _header = "x-byollm-runner"
    capabilities: Sequence[Mapping[str, str]] = (
        {
            "kind": "llm.generate",
            "service": "local",
            "backendId": "llamacpp",
            "backendClass": "http",
            "model": "bench",
            "offerScope": "private",
        },
    )

    async def claim(self, most: int) -> list[dict[str, Any]]:
        answer = await self._post("claim", {"capabilities": self.capabilities, "max": most})
        jobs: list[dict[str, Any]] = answer["jobs"]
        return jobs

    async def fetch(self, job_id: str, lease_id: str) -> dict[str, Any]:
        answer = await self._post("fetch", {"jobId": job_id, "leaseId": lease_id})
        envelope: dict[str, Any] = answer["envelope"]
        return envelope

    async def result(self, job_id: str, lease_id: str, envelope: Mapping[str, Any], disposition: str) -> None:
        fields = {"jobId": job_id, "leaseId": lease_id, "envelope": envelope, "disposition": disposition}
        await self._post("result", fields)

    async def heartbeat(self, leases: Sequence[Mapping[str, str]] = _NO_LEASES) -> dict[str, Any]:
        """Reports presence and the leases held; answers, among much else, which of them are cancelled."""
        fields = {
            "daemonVersion": "0.1.1",
            "capabilities": self.capabilities,
            "withheld": [],
            "activeLeases": leases,
        }
        answer: dict[str, Any] = await self._post("heartbeat", fields)
        return answer

    async def _post(self, endpoint: str, fields: Mapping[str, Any]) -> Any:
        request = {"protocolVersion": PROTOCOL_VERSION, "runnerId": self.party.caller_id, **fields}
        return await self._call("POST", f"/byollm/{endpoint}", endpoint, orjson.dumps(request))
