"""How soon devices know, on both relays: variants, comparisons, limits."""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from bench.figures import latency_ms
from bench.interleaving import InterleavedRun
from bench.our_relay import plan
from bench.our_relay.connected_relay import ConnectedRelay
from bench.our_relay.latencies import OurHandlerCancels, OurNoticeCancels, OurStarts
from bench.our_relay.turns import Group, run_in_turns
from bench.our_relay.workbench import Bench
from bench.peer_relay import plan as peer_plan
from bench.peer_relay.cancels import PeerCancels
from bench.quantiles import quantile
from bench.report import Holding, Section
from bench.variant import Variant

_Measured = Callable[[ConnectedRelay, int], Variant]


async def latencies(bench: Bench) -> AsyncIterator[Section]:
    groups: list[Group] = []
    if bench.installer is not None:
        peer = PeerCancels(peer_plan.CANCELS, bench.installer, bench.effort.cancel_daemons)
        groups.append(lambda: [peer])
    most = bench.effort.latency_jobs
    groups += [group for number in bench.effort.connected for group in _latency_groups(number, most)]
    run = await run_in_turns(bench.session, groups, rounds=1, seconds=bench.effort.cancel_span)
    yield _cancels(bench, run)
    yield _starts(bench, run)


def _latency_groups(connected: int, most: int) -> Sequence[Group]:
    """All variants on one relay, but on one each where one device more would be twice as many."""
    variants: list[_Measured] = [
        partial(OurNoticeCancels, _notice_name(connected)),
        partial(OurHandlerCancels, _handler_name(connected)),
        partial(OurStarts, _start_name(connected)),
    ]

    def group(members: Sequence[_Measured]) -> Sequence[Variant]:
        relay = ConnectedRelay(connected)
        return [member(relay, most) for member in members]

    apart = [[variant] for variant in variants] if connected == 1 else [variants]
    return [partial(group, members) for members in apart]


def _notice_name(connected: int) -> str:
    return f"ours, {connected:,} connected: notice read"


def _handler_name(connected: int) -> str:
    return f"ours, {connected:,} connected: handler cancelled"


def _start_name(connected: int) -> str:
    return f"ours, {connected:,} connected"


def _cancels(bench: Bench, run: InterleavedRun) -> Section:
    section = Section("Cancel: from the site's call until the device knows", "cancel", latency_only=True)
    section.notes = [
        "ours: notice read by a device's stream, or a running handler of the client library cancelled",
        "the peer's times begin later, with the answer to the site's call",
        f"peer: jobs of 0 to {bench.effort.cancel_span:.0f} s of age, {bench.effort.cancel_daemons} devices",
    ]
    peer = peer_plan.CANCELS
    names = [name(each) for each in bench.effort.connected for name in (_notice_name, _handler_name)]
    section.add(run, [peer, *names])
    for connected in bench.effort.connected:
        for name, goal in (
            (_notice_name(connected), plan.NOTICE_MS.get(connected)),
            (_handler_name(connected), plan.HANDLER_MS),
        ):
            _hold(section, run, name, goal)
            bound, stretch = plan.CANCEL_RATIO
            comparison = f"p99, peer / {name}"
            section.compare(run, comparison, (peer, name), latency_ms(0.99), bound=bound, stretch=stretch)
    return section


def _starts(bench: Bench, run: InterleavedRun) -> Section:
    section = Section("From the site's enqueue to the start of the handler", "job", latency_only=True)
    section.notes = ["one job at a time; site and device by the client library, sealed and opened"]
    names = [_start_name(connected) for connected in bench.effort.connected]
    section.add(run, names)
    for name in names:
        _hold(section, run, name, plan.HANDLER_MS)
    return section


def _hold(section: Section, run: InterleavedRun, name: str, most: float | None) -> None:
    found = [latency for burst in run.bursts(name) for latency in burst.latencies_ms]
    if found:
        section.holdings.append(Holding(f"p99, {name}", quantile(found, 0.99), "ms", most))
        section.holdings.append(Holding(f"longest, {name}", max(found), "ms"))
