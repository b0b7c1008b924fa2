"""What a device with a control plane takes on: nothing without a grant that is good for exactly this job."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay_service.client import Daemon
from relay_service.client.daemon_config import Limits
from relay_service.client.outcomes import OkOutcome
from relay_service.core.model import Audience, WithheldKind
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from service_common.clocks import ManualClock
from service_common.signing import Signer
from tests.relay_service.client.daemon_words import TEAM, consented
from tests.relay_service.client.granting import CONTROL, signed
from tests.relay_service.client.real_relay import DEVICE_KEYS, GENERATE, SITE_KEYS, STRANGER_KEYS
from tests.relay_service.client.scripted_device import (
    START_MS,
    PlayedRelay,
    ServerItem,
    Work,
    lease_ref,
    opened_result,
    played_relay,
)

REFUSED = daemon_plane_pb2.RELEASE_REASON_REFUSED
OTHER_ROW = replace(GENERATE, service="other", model="large")


def device(
    folder: Path, work: Work | None = None, **options: Any
) -> AbstractAsyncContextManager[PlayedRelay]:
    given = {"control_plane_key": CONTROL.public_key, "spool_dir": folder / "spool", **options}
    return played_relay(work, **given)


async def refused(relay: PlayedRelay) -> bool:
    request = await relay.released()
    assert relay.work.started == []
    return request.reason == REFUSED


async def test_a_job_with_a_grant_is_run_by_the_service_that_it_names(tmp_path: Path) -> None:
    async with device(tmp_path, matrix=(GENERATE, OTHER_ROW)) as relay:
        relay.work.gate.set()
        await relay.start("j-1", grant=signed(service="other"))
        result = opened_result(await relay.completed())

        assert relay.work.started[0].capability == OTHER_ROW
        assert result.ran.model == "large"


@pytest.mark.parametrize(
    "grant",
    [
        None,
        signed("j-2"),
        signed(user="bob"),
        signed(owner="bob"),
        signed(site=STRANGER_KEYS.key_id),
        signed(kind="llm.chat"),
        signed(purpose="writing"),
        signed(service="nothing of this name"),
        signed(issued_at_ms=START_MS - 120_001),
        signed(issued_at_ms=START_MS + 30_001),
        signed(signer=Signer(b"\x06" * 32)),
        signed(signer=DEVICE_KEYS.signer),
    ],
)
async def test_a_job_without_a_good_grant_is_refused(
    tmp_path: Path, grant: job_pb2.SignedGrant | None
) -> None:
    async with device(tmp_path) as relay:
        await relay.grant("j-1", grant=grant)

        assert await refused(relay)


async def test_the_window_of_a_grant_counts_by_the_relays_clock(tmp_path: Path) -> None:
    # This machine is an hour late; the relay has said so in its welcome.
    async with device(tmp_path) as relay:
        relay.daemon._time._ahead_ms = -3_600_000
        await relay.grant("j-1", grant=signed(), deadline_at_ms=START_MS + 9_000_000)
        assert await refused(relay)
        now = signed("j-2", issued_at_ms=START_MS + 3_600_000)
        await relay.start("j-2", lease="l-2", grant=now, deadline_at_ms=START_MS + 9_000_000)


async def test_a_grant_is_good_for_one_run(tmp_path: Path) -> None:
    async with device(tmp_path) as relay:
        relay.work.gate.set()
        await relay.start("j-1", grant=signed())
        await relay.completed()
        await relay.grant("j-1", lease="l-2", grant=signed())
        request = await relay.released()

        assert request.reason == REFUSED
        assert list(request.leases) == [lease_ref("j-1", "l-2")]


async def test_a_grant_that_two_leases_have_runs_once(tmp_path: Path) -> None:
    async with device(tmp_path) as relay:
        await relay.grant("j-1", grant=signed())
        await relay.grant("j-1", lease="l-2", grant=signed())
        await relay.stream.next_item("grant_ack")
        await relay.payload("j-1")
        await relay.begun(1)
        await relay.payload("j-1", lease="l-2")
        await relay.advance_until(lambda: relay.stream.items("call"), step_ms=1_000)

        assert list((await relay.released()).leases) == [lease_ref("j-1", "l-2")]
        assert len(relay.work.started) == 1


async def test_a_grant_stays_used_over_a_restart(tmp_path: Path) -> None:
    async with device(tmp_path) as relay:
        await relay.start("j-1", grant=signed())
    async with device(tmp_path) as relay:
        await relay.grant("j-1", lease="l-2", grant=signed())

        assert await refused(relay)


async def test_nothing_runs_when_a_used_grant_cannot_be_written_down(tmp_path: Path) -> None:
    async with device(tmp_path) as relay:
        (tmp_path / "spool" / "ledger.jsonl").mkdir()
        await relay.grant("j-1", grant=signed())
        await relay.payload("j-1")
        request = await relay.released()

        assert request.reason == daemon_plane_pb2.RELEASE_REASON_BACKEND_DOWN
        assert relay.work.started == []


async def test_somebody_elses_job_needs_a_service_for_the_team_and_a_grant(tmp_path: Path) -> None:
    for_bob = signed(user="bob")
    async with device(tmp_path, matrix=(GENERATE,)) as relay:
        assert relay.hello.matrix[0].offer_scope == job_pb2.AUDIENCE_PRIVATE
        await relay.grant("j-1", owner="bob", grant=for_bob)
        assert await refused(relay)
    async with device(tmp_path, matrix=(TEAM,)) as relay:
        assert relay.hello.matrix[0].offer_scope == job_pb2.AUDIENCE_TEAM
        await relay.grant("j-1", owner="bob")
        assert await refused(relay)
        await relay.start("j-1", lease="l-2", owner="bob", grant=for_bob)
        assert not relay.work.started[0].own


async def test_without_a_control_plane_a_device_serves_its_owner_alone() -> None:
    held_back = WithheldKind("llm.chat", (("a", Audience.TEAM), ("b", Audience.PRIVATE)))
    async with played_relay(matrix=(TEAM,), withheld=(held_back,)) as relay:
        assert relay.hello.matrix[0].offer_scope == job_pb2.AUDIENCE_PRIVATE
        claimants = relay.hello.withheld[0].claimants
        assert [each.offer_scope for each in claimants] == [job_pb2.AUDIENCE_PRIVATE] * 2
        await relay.grant("j-1", owner="bob", grant=signed(user="bob"))
        assert await refused(relay)
        await relay.start("j-2", lease="l-2")


@pytest.mark.parametrize("backend_id", ["claude-cli", "codex-cli", "anthropic"])
async def test_what_costs_money_is_not_offered_to_others(tmp_path: Path, backend_id: str) -> None:
    async with device(tmp_path, matrix=(replace(TEAM, backend_id=backend_id),)) as relay:
        assert relay.hello.matrix[0].offer_scope == job_pb2.AUDIENCE_PRIVATE
        await relay.grant("j-1", owner="bob", grant=signed(user="bob"))

        assert await refused(relay)


async def test_a_new_site_of_the_directory_is_served_with_a_grant(tmp_path: Path) -> None:
    async with device(tmp_path, pins=[]) as relay:
        sites = {"sites": [consented(STRANGER_KEYS)]}
        await relay.stream.send(ServerItem(sites_changed={"directory": sites}))
        await relay.grant("j-1", site=STRANGER_KEYS, grant=signed(site=STRANGER_KEYS.key_id))
        await relay.payload("j-1", site=STRANGER_KEYS)
        await relay.begun(1)

        assert relay.work.started[0].site == STRANGER_KEYS.key_id


@pytest.mark.parametrize("missing", ["owner", "spool_dir"])
def test_a_control_plane_needs_an_owner_and_a_memory(tmp_path: Path, missing: str) -> None:
    given: dict[str, Any] = {"owner": "alice", "spool_dir": tmp_path, "control_plane_key": b"\x05" * 32}
    with pytest.raises(ValueError, match="has an owner and a folder"):
        Daemon(
            "127.0.0.1:1",
            runner_id="desk",
            keys=DEVICE_KEYS,
            pins=[SITE_KEYS.public],
            matrix=(),
            handlers={},
            **{**given, missing: None},
        )


# -- budgets ----------------------------------------------------------------------------


async def serve_bob(relay: PlayedRelay, name: str, prompt: str = "hello") -> None:
    lease = f"l-{name}"
    grant = signed(name, user="bob", issued_at_ms=relay.clock.now_ms())
    far = relay.clock.now_ms() + 900_000
    await relay.grant(name, lease=lease, owner="bob", grant=grant, deadline_at_ms=far)
    await relay.payload(name, prompt=prompt, lease=lease)


async def test_others_get_a_budget_that_a_restart_does_not_renew(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    async with device(tmp_path, matrix=(TEAM,), slots=32, clock=clock) as relay:
        relay.work.gate.set()
        for number in range(20):
            await serve_bob(relay, f"j-{number}")
            await relay.completed()
        assert relay.work.started[0].limits.wall_clock_seconds == 120
        assert relay.work.started[0].limits.max_output_bytes == 262_144
        await serve_bob(relay, "j-20")
        assert list((await relay.released()).leases) == [lease_ref("j-20", "l-j-20")]
        await relay.start("own", lease="l-own", grant=signed("own"))
        assert relay.work.started[-1].limits.max_output_bytes == 4_194_304
    again = ManualClock(clock.now_ms())
    async with device(tmp_path, matrix=(TEAM,), clock=again) as relay:
        await serve_bob(relay, "j-21")
        assert await refused(relay)
        # An hour after the first of them there is room again.
        again.stall(3_600_000)
        relay.work.gate.set()
        await serve_bob(relay, "j-22")
        await relay.begun(1)


async def test_others_have_a_day_budget_and_a_bound_on_their_text(tmp_path: Path) -> None:
    limits = Limits(others_per_day=1, others_payload_characters=5)
    async with device(tmp_path, matrix=(TEAM,), run_limits=limits) as relay:
        await serve_bob(relay, "j-1", "123456")
        assert await refused(relay)
        await serve_bob(relay, "j-2", "12345")
        await relay.begun(1)
        relay.clock.stall(3_600_001)
        await serve_bob(relay, "j-3")
        assert list((await relay.released()).leases) == [lease_ref("j-3", "l-j-3")]


async def test_a_paid_service_stops_at_its_ceiling(tmp_path: Path) -> None:
    paid = replace(TEAM, backend_id="openai", offer_scope=Audience.TEAM)
    limits = Limits(ceilings={"desk": 100})
    options: Any = {"matrix": (paid,), "run_limits": limits}
    async with device(tmp_path, Work(outcome=OkOutcome("x" * 60)), **options) as relay:
        assert relay.hello.matrix[0].offer_scope == job_pb2.AUDIENCE_TEAM
        relay.work.gate.set()
        await serve_bob(relay, "j-1", "0123456789")
        await relay.completed()
        assert relay.work.started[0].limits.max_output_bytes == 90
    async with device(tmp_path, **options) as relay:
        # 10 and 60 are used; what is left bounds the answer, and while it runs all of it is taken.
        await serve_bob(relay, "j-2", "0123456789")
        await relay.begun(1)
        assert relay.work.started[0].limits.max_output_bytes == 20
        await serve_bob(relay, "j-3", "0")
        assert list((await relay.released()).leases) == [lease_ref("j-3", "l-j-3")]
        # A day after the first one, that one's share is free again.
        relay.clock.stall(86_400_000)
        assert relay.daemon._ledger.characters_within_day("desk") <= 30
