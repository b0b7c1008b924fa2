"""A control plane for tests: its key, and grants for the jobs of `scripted_device`."""

from dataclasses import replace
from typing import Any

from relay_service.client.grants import Grant, sign_grant
from sealwork.relay.v1 import job_pb2
from service_common.signing import Signer
from tests.relay_service.client.real_relay import SITE_KEYS
from tests.relay_service.client.scripted_device import START_MS

CONTROL = Signer(b"\x05" * 32)
GRANT = Grant(
    grant_id="grant_1",
    job_id="j-1",
    site=SITE_KEYS.key_id,
    user="alice",
    owner="alice",
    purpose="default",
    kind="llm.generate",
    service="desk",
    issued_at_ms=START_MS,
)


def signed(job_id: str = "j-1", *, signer: Signer = CONTROL, **changes: Any) -> job_pb2.SignedGrant:
    """The grant of a job, with an id of its own."""
    fields = {"grant_id": f"grant of {job_id}", "job_id": job_id, **changes}
    return sign_grant(replace(GRANT, **fields), signer)
