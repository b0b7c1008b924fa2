"""Jobs in each state, with literal clocks, for the tests of the pure rules."""

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import (
    Audience,
    Claim,
    Direction,
    Disposition,
    JobKey,
    JobState,
    JobStub,
    RoutedJob,
    SealedEnvelope,
    SizeClass,
)

NOW_MS = 1_000_000
DEADLINE_MS = 9_000_000
DEVICE = PublicIdentity(b"i" * 32, b"e" * 32, b"s" * 64)
CLAIM = Claim("runner", "alice", DEVICE, "lease", 1_060_000)
HELD_BACK = Claim("runner", "alice", DEVICE, "lease", 1_005_000)
PAYLOAD = SealedEnvelope(b"payload", "device", "site", Direction.PAYLOAD, DEADLINE_MS)
RESULT = SealedEnvelope(b"result", "site", "device", Direction.RESULT, DEADLINE_MS)
STUB = JobStub("job", "llm.generate", "alice", "key", Audience.TEAM, SizeClass.SMALL, False, DEADLINE_MS)


def job(state: JobState = JobState.QUEUED, **fields: object) -> RoutedJob:
    """A job as it stands in that state at 1,000,000."""
    usual: dict[JobState, dict[str, object]] = {
        JobState.QUEUED: {},
        JobState.AUTHORISING: {"claim": HELD_BACK},
        JobState.AWAITING_PAYLOAD: {"claim": CLAIM, "awaiting_until_ms": 1_010_000},
        JobState.READY: {"claim": CLAIM, "payload": PAYLOAD},
        JobState.RUNNING: {"claim": CLAIM, "payload": PAYLOAD},
        JobState.DONE: {
            "claim": CLAIM,
            "result": RESULT,
            "disposition": Disposition.OK,
            "retained_until_ms": 87_400_000,
        },
    }
    return RoutedJob(JobKey("site", "job"), STUB, 1, state, **(usual[state] | fields))  # type: ignore[arg-type]
