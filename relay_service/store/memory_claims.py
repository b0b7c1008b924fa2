"""Claims by request id, so that a repeated one is answered and not granted again."""

from collections.abc import Sequence

from relay_service.store.base import ClaimRequest


class ClaimMemory:
    """The leases that each request was answered with, for as long as they are held."""

    def __init__(self) -> None:
        self._leases: dict[tuple[str, str], list[str]] = {}
        self._requests: dict[str, tuple[str, str]] = {}

    def remember(self, request: ClaimRequest, lease_ids: Sequence[str]) -> None:
        """Notes the answer; an empty one is not remembered."""
        if request.request_id is None or not lease_ids:
            return
        name = (request.runner_id, request.request_id)
        for lease_id in self._leases.pop(name, ()):
            del self._requests[lease_id]
        self._leases[name] = list(lease_ids)
        for lease_id in lease_ids:
            self._requests[lease_id] = name

    def leases(self, request: ClaimRequest) -> Sequence[str]:
        """The leases of an earlier answer that are still held."""
        if request.request_id is None:
            return ()
        return self._leases.get((request.runner_id, request.request_id), ())

    def forget(self, lease_id: str) -> None:
        """The lease is over, or its job finished."""
        name = self._requests.pop(lease_id, None)
        if name is None:
            return
        self._leases[name].remove(lease_id)
        if not self._leases[name]:
            del self._leases[name]
