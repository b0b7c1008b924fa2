"""Settings of a server under which a routing store would lose what it has confirmed."""

from typing import Any

from relay_service.store.valkey_wire import ResponseError, Wire, exchange

_KEEPS_EVERYTHING = "noeviction"


async def settings_problems(wire: Wire) -> list[str]:
    """What an operator should change; nothing when the server does not show its settings.

    Raises:
        StoreUnavailable: the server cannot serve at present.
    """
    try:
        found = await exchange(wire, "CONFIG", "GET", "appendonly", "maxmemory", "maxmemory-policy")
    except ResponseError:
        return []
    return list(_problems(dict(zip(found[::2], found[1::2], strict=True))))


def _problems(settings: dict[bytes, Any]) -> list[str]:
    problems: list[str] = []
    if settings.get(b"appendonly") == b"no":
        problems.append("appendonly is off: its restart loses jobs, leases, notices and results")
    policy = settings.get(b"maxmemory-policy", b"").decode()
    if settings.get(b"maxmemory", b"0") != b"0" and policy != _KEEPS_EVERYTHING:
        problems.append(f"maxmemory-policy is {policy}: a full memory drops jobs; set {_KEEPS_EVERYTHING}")
    return problems
