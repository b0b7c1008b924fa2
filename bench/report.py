"""What a run found: figures of each variant, comparisons against goals, and what is missing and why."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from bench.deployment_costs import DeploymentCost
from bench.figures import Figure
from bench.interleaving import InterleavedRun, Ratio
from bench.operation_costs import OperationCost
from bench.quantiles import median, quantile
from bench.variant import BurstResult


@dataclass(frozen=True, slots=True)
class Summary:
    """One variant over all its bursts.

    Rates, CPU and cores are medians of the bursts; latencies are of all operations together; memory is the
    greatest seen.
    """

    variant: str
    bursts: int
    operations: int
    failures: int
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    cores: float
    rss_kib: int


def summarize(variant: str, bursts: Sequence[BurstResult]) -> Summary:
    """The figures of one variant; it must have had at least one burst."""
    latencies = [latency for burst in bursts for latency in burst.latencies_ms]
    return Summary(
        variant=variant,
        bursts=len(bursts),
        operations=sum(burst.operations for burst in bursts),
        failures=sum(burst.failures for burst in bursts),
        rate=median(burst.rate for burst in bursts),
        p50_ms=quantile(latencies, 0.5),
        p99_ms=quantile(latencies, 0.99),
        cpu_ms=median(burst.cpu_ms for burst in bursts),
        cores=median(burst.cores for burst in bursts),
        rss_kib=max(burst.server_rss_kib for burst in bursts),
    )


class Verdict(StrEnum):
    """How a comparison stands to its goal."""

    STRETCH = "stretch goal met"
    MET = "met"
    MISSED = "missed"
    NO_GOAL = "no goal"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A ratio of two variants in the same rounds, and the goal it is held against.

    Attributes:
        bound: what it is to be at the least, and `stretch` what it may well be.
        most: what it may be at the most, for a ratio that is better when it is small.
    """

    name: str
    ratio: Ratio
    bound: float | None = None
    stretch: float | None = None
    most: float | None = None

    @property
    def verdict(self) -> Verdict:
        if self.most is not None:
            return Verdict.MET if self.ratio.median <= self.most else Verdict.MISSED
        if self.bound is None:
            return Verdict.NO_GOAL
        if self.stretch is not None and self.ratio.median >= self.stretch:
            return Verdict.STRETCH
        return Verdict.MET if self.ratio.median >= self.bound else Verdict.MISSED


@dataclass(frozen=True, slots=True)
class Holding:
    """A figure, and what it may be at the most."""

    name: str
    value: float
    unit: str
    most: float | None = None

    @property
    def verdict(self) -> Verdict:
        if self.most is None:
            return Verdict.NO_GOAL
        return Verdict.MET if self.value <= self.most else Verdict.MISSED


@dataclass(slots=True)
class Section:
    """One workload: its variants, its comparisons and limits, and what to know when reading them.

    Attributes:
        operation: what one operation is, in the singular.
        amount: what the operations are told apart by, besides their names.
        latency_only: rates and costs say nothing here, and are left out of the table.
        operations: what single operations cost, where it is not variants that are compared.
        deployments: the same by deployment, with who takes how much of the cores.
    """

    title: str
    operation: str
    latency_only: bool = False
    amount: str = "queued"
    summaries: list[Summary] = field(default_factory=list)
    operations: list[OperationCost] = field(default_factory=list)
    deployments: list[DeploymentCost] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, run: InterleavedRun, names: Sequence[str]) -> None:
        """Takes over the figures of these variants, and the reasons of those that are missing."""
        for name in names:
            bursts = run.bursts(name)
            if bursts:
                self.summaries.append(summarize(name, bursts))
            if name in run.absent:
                self.absent[name] = run.absent[name]

    def compare(
        self,
        run: InterleavedRun,
        name: str,
        pair: tuple[str, str],
        figure: Figure,
        *,
        bound: float | None = None,
        stretch: float | None = None,
    ) -> None:
        """Adds the ratio of the first variant's figure to the second's, unless they never met in a round."""
        ratio = run.ratio(*pair, figure)
        if ratio is not None:
            self.comparisons.append(Comparison(name, ratio, bound, stretch))


@dataclass(slots=True)
class Report:
    """A whole run."""

    title: str
    machine: dict[str, str | int | float]
    sections: list[Section] = field(default_factory=list)

    def to_json(self) -> bytes:
        """The report as indented JSON; figures that do not exist (NaN, infinity) become null."""
        return orjson.dumps(self._document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def _document(self) -> dict[str, Any]:
        document = asdict(self)
        for section, written in zip(self.sections, document["sections"], strict=True):
            for comparison, entry in zip(section.comparisons, written["comparisons"], strict=True):
                entry["verdict"] = comparison.verdict.value
            for holding, entry in zip(section.holdings, written["holdings"], strict=True):
                entry["verdict"] = holding.verdict.value
        return document
