"""What one site, one device or one route may take up."""

from dataclasses import dataclass

from relay_service.core import limits


@dataclass(frozen=True, slots=True)
class Quotas:
    """Bounds of a store's content; the defaults are the protocol's.

    Attributes:
        unfinished_jobs_per_site: more are refused with `Refusal.QUOTA_EXCEEDED`.
        results_per_site: uncollected results; the oldest is dropped for a newer one.
        result_bytes_per_site: ciphertext bytes of uncollected results, bounded in the same way.
            The newest result is kept even when it alone is larger.
        ended_notices_per_site: unread `JOB_ENDED` rows; the oldest goes first.
        leases_per_device: unfinished jobs that one device may hold.
        unsealed_per_route: grants of one route that may wait for their payload at a time.
    """

    unfinished_jobs_per_site: int = limits.QUEUED_JOBS_PER_SITE
    results_per_site: int = limits.QUEUED_JOBS_PER_SITE
    result_bytes_per_site: int = limits.RESULT_BYTES_PER_SITE
    ended_notices_per_site: int = limits.QUEUED_JOBS_PER_SITE
    leases_per_device: int = limits.LEASES_PER_DEVICE
    unsealed_per_route: int = limits.UNSEALED_GRANTS_PER_ROUTE
