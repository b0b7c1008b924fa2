"""What random histories are made of, for every store."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st

from relay_service.core.model import (
    Audience,
    Direction,
    JobStub,
    ReleaseReason,
    SealedEnvelope,
    SizeClass,
)
from relay_service.core.quotas import Quotas

from .machine_views import RUNNERS

Answer = TypeVar("Answer")

START_MS = 1_700_000_000_000
FAR_MS = 200_000_000
QUOTAS = Quotas(
    unfinished_jobs_per_site=5,
    results_per_site=2,
    result_bytes_per_site=9,
    ended_notices_per_site=3,
    leases_per_device=4,
)
SITES = ("s1", "s2")
OWNERS = ("alice", "bob")
KINDS = ("chat", "generate")
ROUTES = tuple((site, owner) for site in SITES for owner in OWNERS)

sites = st.sampled_from(SITES)
JOB_IDS = ("j1", "j2", "j3", "j4", "j5")
job_ids = st.sampled_from(JOB_IDS)
runners = st.sampled_from(tuple(RUNNERS))
spans = st.sampled_from(
    (1, 500, 1_000, 4_999, 5_000, 9_999, 10_000, 10_001, 30_000, 120_000, 600_000, 3_600_000, 86_400_000)
)
short_spans = st.sampled_from((1, 1_000, 4_999, 5_000, 9_999, 10_000, 10_001, 30_000))
unwelcome = st.sampled_from((ReleaseReason.REFUSED, ReleaseReason.BAD_ENVELOPE))
lease_spans = st.sampled_from((1_000, 5_000, 15_000, 60_000))


def answer_of(call: Coroutine[Any, Any, Answer]) -> Answer:
    """Runs a call to its end at once: the memory store waits for nothing."""
    try:
        call.send(None)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer
    raise AssertionError("the memory store waited for something")


def stub_of(job_id: str, kind: str, owner: str, audience: Audience, deadline: int) -> JobStub:
    return JobStub(job_id, kind, owner, "key", audience, SizeClass.SMALL, False, deadline)


def envelope(ciphertext: bytes) -> SealedEnvelope:
    return SealedEnvelope(ciphertext, "to", "from", Direction.RESULT, START_MS)
