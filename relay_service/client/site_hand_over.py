"""Asking before a sealed payload leaves for the relay."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from sealwork.relay.v1 import site_plane_pb2
from service_common.client_session_types import seconds_of


@dataclass(frozen=True, slots=True)
class HandOver:
    """A payload that is sealed to a device, and has not left yet.

    Attributes:
        job_id: The job.
        lease_id: The grant that it is for. Another grant is another device's, or another try of the same one.
        runner_id: The device.
        seconds: How long the relay goes on waiting for it, from when it said so; 0 when it did not say.
    """

    job_id: str
    lease_id: str
    runner_id: str
    seconds: float


Admit: TypeAlias = Callable[[HandOver], Awaitable[bool]]
"""Tells whether a payload may leave. One that may not stays here, and the relay's wait for it passes."""


def hand_over_of(job_id: str, notice: site_plane_pb2.PleaseSeal) -> HandOver:
    """Return what a request to seal asks for."""
    return HandOver(job_id, notice.lease_id, notice.runner_id, seconds_of(notice.seal_within))
