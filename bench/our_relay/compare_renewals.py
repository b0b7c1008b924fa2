"""Heartbeats of the peer's devices against renewals of ours: variants, comparisons, memory."""

from collections.abc import AsyncIterator

from bench.figures import cores, cpu_ms
from bench.our_relay import plan
from bench.our_relay.renewals import DEFAULT_SECONDS, OurRenewals
from bench.our_relay.turns import Group, run_in_turns
from bench.our_relay.workbench import Bench
from bench.peer_relay.heartbeats import HEARTBEAT_SECONDS, PeerHeartbeats
from bench.peer_relay.heartbeats import Fleet as PeerFleet
from bench.report import Holding, Section

# Descriptors that are none of a device's connection.
_FILES_BESIDE_DEVICES = 500


async def renewals(bench: Bench) -> AsyncIterator[Section]:
    for fleet in bench.effort.fleets:
        yield await _renewals(bench, fleet)


async def _renewals(bench: Bench, fleet: plan.Fleet) -> Section:
    devices = fleet.devices
    section = Section(f"{devices:,} devices that hold a job each, one connection each", "renewal")
    if devices + _FILES_BESIDE_DEVICES > bench.open_files:
        section.absent["all"] = f"only {bench.open_files:,} files may be open (ulimit -Hn)"
        return section
    section.notes = [
        f"peer and ours: a heartbeat, or a renewal, of each device every {HEARTBEAT_SECONDS:.0f} s",
        f"default pace: a renewal every {DEFAULT_SECONDS:.0f} s, heartbeats both ways after 15 s of silence",
        "failed: lost, or not answered within 5 s of the end of the burst",
    ]
    ours, default, peer = (f"ours, {HEARTBEAT_SECONDS:.0f} s", "ours, default pace", "peer")
    memory: list[float] = []
    groups: list[Group] = [lambda: [OurRenewals(ours, devices, HEARTBEAT_SECONDS, memory.append)]]
    if fleet.at_default_pace:
        groups.append(lambda: [OurRenewals(default, devices, DEFAULT_SECONDS, memory.append)])
    if bench.installer is not None and fleet.against_peer:
        installer = bench.installer
        groups.insert(0, lambda: [PeerHeartbeats(peer, installer, PeerFleet(devices, busy=True))])
    rounds = bench.effort.renewal_rounds if fleet.against_peer else 1
    run = await run_in_turns(bench.session, groups, rounds=rounds, seconds=bench.effort.renewal_seconds)
    section.add(run, [peer, ours, default])
    bound, stretch = plan.RENEWAL_GOALS.get(devices, (None, None))
    name = "server CPU a renewal, peer / ours at the same pace"
    section.compare(run, name, (peer, ours), cpu_ms, bound=bound, stretch=stretch)
    section.compare(run, "server cores, peer / ours at our default pace", (peer, default), cores)
    if memory:
        section.holdings.append(
            Holding("memory for each connected device", max(memory), "KiB", plan.MEMORY_KIB)
        )
    return section
