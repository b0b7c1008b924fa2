"""Whether a job came with a control plane's word that it may run here."""

from collections.abc import Callable

from relay_service.client.grants import Grant, GrantRefusal, verify_grant
from relay_service.client.ledger import Ledger
from sealwork.relay.v1 import job_pb2

DEFAULT_PURPOSE = "default"


class GrantCheck:
    """Judges grants by the key that came with the pairing. The relay's word counts for nothing here."""

    def __init__(self, control_plane: bytes, owner: str, ledger: Ledger, now_ms: Callable[[], int]) -> None:
        """Judge for this device.

        Args:
            control_plane: Raw Ed25519 key of the control plane, 32 bytes.
            owner: The person whose device this is.
            ledger: Knows which grants were used.
            now_ms: Tells the time as the control plane has it, epoch milliseconds.
        """
        self._control_plane = control_plane
        self._owner = owner
        self._ledger = ledger
        self._now_ms = now_ms

    def judge(self, stub: job_pb2.JobStub, signed: job_pb2.SignedGrant | None) -> Grant | str:
        """Return what a job was granted, or why it must not run, in words for the owner's log.

        The grant is not used up by that: it is when the work begins.
        """
        if signed is None:
            return "it has no grant of the control plane"
        grant = verify_grant(
            signed,
            control_plane=self._control_plane,
            owner=self._owner,
            job_id=stub.id,
            now_ms=self._now_ms(),
        )
        if isinstance(grant, GrantRefusal):
            return f"its grant is refused: {grant.value}"
        return self._objection(stub, grant) or grant

    def _objection(self, stub: job_pb2.JobStub, grant: Grant) -> str | None:
        if grant.user != stub.owner:
            return "its grant is about another person's work"
        if grant.site != stub.site:
            return "its grant is about another site"
        if grant.kind != stub.kind:
            return "its grant is about another kind of work"
        if grant.purpose != (stub.purpose if stub.HasField("purpose") else DEFAULT_PURPOSE):
            return "its grant is about another purpose"
        if self._ledger.is_spent(grant):
            return "its grant was used before"
        return None
