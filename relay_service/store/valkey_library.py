"""The functions that decide and write on the server, and the numbers they go by."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from relay_service.core import limits
from relay_service.core.pairing import OUTSTANDING_PAIRINGS, PAIRING_LIFE_MS
from relay_service.core.quotas import Quotas

# In the order in which they build on each other.
_FILES = (
    "site",
    "job",
    "lanes",
    "inbox",
    "leases",
    "churn",
    "steps",
    "moves",
    "holding",
    "commissioning",
    "claiming",
    "commons",
    "relays",
    "pairings",
    "operations",
)

SITES_PER_SWEEP = 500
# Longer than a finished job is kept, and far longer than a lease lasts without a renewal.
RUNNER_SITE_KEPT_MS = 3 * limits.RESULT_RETENTION_MS
_SETTLED_KEPT_MS = 120_000
_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class Library:
    """The text to load, and what the names of its functions begin with.

    Both depend on the content: releases that differ work side by side on one server.
    """

    text: str
    prefix: str


@lru_cache(maxsize=4)
def build_library(quotas: Quotas) -> Library:
    """Puts the library together for a deployment with these quotas."""
    folder = files("relay_service.store") / "lua"
    sources = [(folder / f"{name}.lua").read_text("utf-8") for name in _FILES]
    body = "\n".join((_table(_numbers(quotas)), *sources))
    digest = hashlib.sha256(body.encode()).hexdigest()[:16]
    prefix = f"sealwork_{digest}_"
    text = f"#!lua name=sealwork_{digest}\nlocal PREFIX = '{prefix}'\n{body}"
    return Library(text, prefix)


def _numbers(quotas: Quotas) -> Mapping[str, int]:
    return {
        "awaiting_payload_ms": limits.AWAITING_PAYLOAD_MS,
        "authorisation_ms": limits.AUTHORISATION_MS,
        "maximum_lease_ms": limits.MAXIMUM_LEASE_MS,
        "result_retention_ms": limits.RESULT_RETENTION_MS,
        "presence_retention_ms": limits.PRESENCE_RETENTION_MS,
        "runner_site_kept_ms": RUNNER_SITE_KEPT_MS,
        "settled_kept_ms": _SETTLED_KEPT_MS,
        "settled_ids": _REMEMBERED,
        "past_leases": _REMEMBERED,
        "seal_attempts": limits.SEAL_ATTEMPTS_BEFORE_EVICTION,
        "churn_expiries": limits.CHURN_EXPIRIES,
        "churn_window_ms": limits.CHURN_WINDOW_MS,
        "churn_quiet_ms": limits.CHURN_QUIET_MS,
        "churn_reports_per_site": limits.CHURN_REPORTS_PER_SITE,
        "churn_report_kept_ms": limits.CHURN_REPORT_RETENTION_MS,
        "inline_bytes": limits.INLINE_BODY_BYTES,
        "unfinished_jobs_per_site": quotas.unfinished_jobs_per_site,
        "results_per_site": quotas.results_per_site,
        "result_bytes_per_site": quotas.result_bytes_per_site,
        "ended_notices_per_site": quotas.ended_notices_per_site,
        "leases_per_device": quotas.leases_per_device,
        "unsealed_per_route": quotas.unsealed_per_route,
        "pairing_life_ms": PAIRING_LIFE_MS,
        "outstanding_pairings": OUTSTANDING_PAIRINGS,
        # What one call may do at the most, so that none holds the server up.
        "lapses_per_call": 128,
        "lost_per_call": 64,
        "absent_per_call": 8,
        "sites_per_sweep": SITES_PER_SWEEP,
        "pairings_per_purge": 2 * OUTSTANDING_PAIRINGS,
    }


def _table(numbers: Mapping[str, int]) -> str:
    fields = ", ".join(f"{name} = {number}" for name, number in numbers.items())
    return f"local LIMITS = {{{fields}}}"
