"""A relay with a fault: `python failing_relay.py serve …`. Storing a result fails, and says all it knows."""

from typing import NoReturn

from relay_service.cli import main
from relay_service.store.memory import MemoryRoutingStore


async def complete(self: MemoryRoutingStore, *arguments: object) -> NoReturn:
    raise RuntimeError(f"cannot store {arguments!r}")


MemoryRoutingStore.complete = complete  # type: ignore[method-assign, assignment]

if __name__ == "__main__":
    main()
