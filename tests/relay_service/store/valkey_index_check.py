"""Works a site's indexes on the server out again from its jobs, and compares."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from relay_service.core.lanes import lane_key
from relay_service.core.lapses import due_at_ms
from relay_service.core.model import JobState, RoutedJob

UNSEALED = {JobState.AUTHORISING, JobState.AWAITING_PAYLOAD}
HELD = {*UNSEALED, JobState.READY, JobState.RUNNING}


def check_valkey_indexes(url: str, sites: Iterable[str]) -> None:
    from valkey import Valkey

    with Valkey.from_url(url, decode_responses=True) as client:
        for site in sites:
            _Check(client, site).all()


class _Check:
    def __init__(self, client: Any, site: str) -> None:
        from relay_service.store.valkey_names import site_tag
        from relay_service.store.valkey_records import job_from

        self.client = client
        self.base = f"sealwork:{{{site_tag(site)}}}:"
        texts = client.hgetall(f"{self.base}jobs")
        self.records = {job_id: json.loads(text) for job_id, text in texts.items()}
        self.jobs: dict[str, RoutedJob] = {
            job_id: job_from(site, record, b"", b"") for job_id, record in self.records.items()
        }

    def all(self) -> None:
        self.queues()
        self.holders()
        self.site()
        self.clocks()
        self.no_key_is_left_over()

    def _names(self, pattern: str) -> set[str]:
        return {key.removeprefix(self.base) for key in self.client.keys(f"{self.base}{pattern}")}

    def _members(self, name: str) -> set[str]:
        return set(self.client.zrange(f"{self.base}{name}", 0, -1))

    def _grouped(self, group: Any, chosen: Any) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for job_id, job in self.jobs.items():
            if chosen(job):
                found[group(job)].add(job_id)
        return dict(found)

    def queues(self) -> None:
        queued = [job for job in self.jobs.values() if job.state is JobState.QUEUED]
        assert self._members("turns") == {job.stub.owner for job in queued}
        assert dict(self.client.zrange(f"{self.base}queued", 0, -1, withscores=True)) == {
            job.stub.id: float(self.records[job.stub.id]["enqueued_at_ms"]) for job in queued
        }
        lanes: dict[str, dict[str, float]] = defaultdict(dict)
        for job in queued:
            kind, audience, reoffer_to, blocked = lane_key(job)
            text = json.dumps(
                [job.stub.owner, kind, audience.value, reoffer_to or False, sorted(blocked) or {}],
                separators=(",", ":"),
            )
            digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            lanes[digest][job.stub.id] = float(job.sequence)
            assert self.client.hget(f"{self.base}lanes:{job.stub.owner}", digest) == text
        assert self._names("lane:*") == {f"lane:{digest}" for digest in lanes}
        for digest, entries in lanes.items():
            assert dict(self.client.zrange(f"{self.base}lane:{digest}", 0, -1, withscores=True)) == entries
        for owner in {job.stub.owner for job in queued}:
            assert set(self.client.hkeys(f"{self.base}lanes:{owner}")) <= lanes.keys()
        unsealed = self._grouped(lambda job: job.stub.owner, lambda job: job.state in UNSEALED)
        assert self._names("unsealed:*") == {f"unsealed:{owner}" for owner in unsealed}
        for owner, ids in unsealed.items():
            ends = dict(self.client.zrange(f"{self.base}unsealed:{owner}", 0, -1, withscores=True))
            assert ends == {job_id: float(_window_end(self.jobs[job_id])) for job_id in ids}

    def holders(self) -> None:
        held = self._grouped(lambda job: job.claim.runner_id, lambda job: job.state in HELD)
        assert self._names("held:*") == {f"held:{runner}" for runner in held}
        for runner, ids in held.items():
            assert self._members(f"held:{runner}") == ids
        answered: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for job_id, record in sorted(self.records.items(), key=_grant_number):
            claim = record.get("claim") or {}
            if self.jobs[job_id].state in HELD and "request" in claim:
                answered[claim["runner_id"]][claim["request"]].append(job_id)
        assert self._names("claims:*") == {f"claims:{runner}" for runner in answered}
        for runner, requests in answered.items():
            kept = self.client.hgetall(f"{self.base}claims:{runner}")
            assert {request: json.loads(ids) for request, ids in kept.items()} == requests

    def site(self) -> None:
        done = {job_id: job for job_id, job in self.jobs.items() if job.state is JobState.DONE}
        awaiting = {
            job_id
            for job_id, job in self.jobs.items()
            if job.state is JobState.AWAITING_PAYLOAD and not job.cancelled
        }
        assert self._members("finished") == set(done)
        assert self._members("awaiting") == awaiting
        bytes_kept = sum(self.records[job_id]["result"]["bytes"] for job_id in done)
        assert int(self.client.hget(f"{self.base}site", "bytes") or 0) == bytes_kept
        assert self._names("result:*") == {f"result:{job_id}" for job_id in done}
        leases = {job.claim.lease_id for job in self.jobs.values() if job.payload and job.claim}
        assert self._names("payload:*") == {f"payload:{lease}" for lease in leases}
        assert self._names("staged:*") == set()
        assert self._members("past_until") == set(self.client.hkeys(f"{self.base}past"))
        ended = set(self.client.hkeys(f"{self.base}ends"))
        assert self._members("ended") == ended
        assert not ended & self.jobs.keys()
        requeued = {job_id for job_id, record in self.records.items() if "requeue" in record}
        outlooks = awaiting | set(done) | ended
        assert self._members("inbox") == {f"o{job_id}" for job_id in outlooks} | {
            f"q{job_id}" for job_id in requeued
        }

    def clocks(self) -> None:
        expected = {
            f"{job.sequence:016d}{job_id}": float(due_at_ms(job)) for job_id, job in self.jobs.items()
        }
        for job_id, text in self.client.hgetall(f"{self.base}ends").items():
            expected[f"~{job_id}"] = float(int(text.split(" ")[0]) + 86_400_000)
        assert dict(self.client.zrange(f"{self.base}due", 0, -1, withscores=True)) == expected
        hint = self.client.hget(f"{self.base}site", "hint")
        if expected:
            assert float(hint) <= min(expected.values())

    def no_key_is_left_over(self) -> None:
        known = {"site", "jobs", "turns", "finished", "awaiting", "inbox", "ends", "ended", "due"}
        known |= {"past", "past_until", "settled", "queued", "churned"}
        groups = ("lane:", "lanes:", "unsealed:", "held:", "claims:", "payload:", "result:", "churn:")
        left_over = {name for name in self._names("*") if name not in known and not name.startswith(groups)}
        assert left_over == set()


def _window_end(job: RoutedJob) -> int:
    assert job.claim is not None
    return job.awaiting_until_ms or job.claim.lease_expires_at_ms


def _grant_number(entry: tuple[str, dict[str, Any]]) -> int:
    return int((entry[1].get("claim") or {}).get("number", 0))
