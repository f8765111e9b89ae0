"""The gate: may a run replace its base, or does it lose quality or time?

A check passes, fails or is inconclusive. A change of a measure fails if the mean is lower than the base's by more than
the margin, and a one-sided randomisation test, adjusted with Holm's method for all measures and datasets, shows a loss.
It passes if the 95 % interval of the difference is above the margin (non-inferiority). With several datasets, their
questions together decide; a single dataset can fail, but has too few questions to be required to pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field

from rag_core.config import Section
from rag_core.errors import InvalidRunError
from rag_core.evaluation.comparison import group_pairs, question_values
from rag_core.evaluation.measured_run import MIN_COVERAGE, MeasuredRun, RunPair, check_coverage
from rag_core.evaluation.significance import (
    FLIPS,
    RESAMPLES,
    Estimate,
    Floats,
    detectable_difference,
    estimate_groups,
    holm,
    worse_p,
)

Outcome: TypeAlias = Literal["pass", "fail", "inconclusive"]
EXIT_CODES: Mapping[Outcome, int] = {"pass": 0, "fail": 1, "inconclusive": 4}


class MeasureGate(Section):
    """The limits of one measure. `margin` is for several datasets together, `set_margin` for one of them."""

    margin: float = Field(default=0.01, ge=0)
    set_margin: float = Field(default=0.02, ge=0)
    direction: Literal["higher", "lower"] = "higher"
    floor: float | None = None


class Gate(Section):
    """The content of a gate file.

    `ranges` holds the lowest and the highest allowed mean, by dataset and measure. `max_latency_ratio` limits the 95th
    percentile of the questions' times, relative to the base; `max_p95_s` limits it in seconds.
    """

    alpha: float = Field(default=0.05, gt=0, lt=1)
    min_coverage: float = Field(default=MIN_COVERAGE, gt=0.5, le=1)
    max_latency_ratio: float | None = Field(default=None, gt=0)
    max_p95_s: dict[Literal["search", "answer"], Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    measures: dict[str, MeasureGate] = Field(default_factory=lambda: {"ndcg@10": MeasureGate()})
    ranges: dict[str, dict[str, tuple[float, float]]] = Field(default_factory=dict)

    @property
    def has_absolute_limits(self) -> bool:
        """True if a run can be checked without a base."""
        return bool(self.ranges or self.max_p95_s) or any(
            measure.floor is not None for measure in self.measures.values()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one check, and its reason in words.

    `value` is the difference from the base, in which a loss is negative; or the mean, the ratio of the times, or the
    95th percentile in seconds.
    `decisive`: the gate cannot pass unless this passes.
    """

    kind: Literal["change", "floor", "range", "latency", "p95"]
    dataset: str
    measure: str
    outcome: Outcome
    value: float
    reason: str
    decisive: bool = True


@dataclass(frozen=True, slots=True)
class GateResult:
    checks: Sequence[Check]

    @property
    def outcome(self) -> Outcome:
        if any(check.outcome == "fail" for check in self.checks):
            return "fail"
        return "inconclusive" if any(c.decisive and c.outcome == "inconclusive" for c in self.checks) else "pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """The change of a measure, with the sign turned if lower is better: a loss is negative."""

    dataset: str
    measure: str
    margin: float
    decisive: bool
    difference: Estimate
    detectable: float
    p: float


def check_run(
    gate: Gate, runs: Sequence[MeasuredRun], pairs: Sequence[RunPair], flips: int = FLIPS, resamples: int = RESAMPLES
) -> GateResult:
    """Checks the runs, and their changes from the base if there are pairs.

    Raises InvalidRunError if a measure is missing or covers too few questions.
    """
    check_coverage([*runs, *(pair.base for pair in pairs)], list(gate.measures), gate.min_coverage)
    changes = _measure_changes(gate, pairs, flips, resamples)
    checks = [*_check_changes(gate, changes), *_check_floors(gate, runs), *_check_ranges(gate, runs)]
    checks += [_check_p95(run, kind, limit) for run in runs for kind, limit in gate.max_p95_s.items()]
    if gate.max_latency_ratio is not None:
        checks += [
            _check_latency(pair, kind, gate.max_latency_ratio, resamples)
            for pair in pairs
            for kind in sorted(pair.base.seconds.keys() & pair.candidate.seconds.keys())
        ]
    return GateResult(checks)


def _measure_changes(gate: Gate, pairs: Sequence[RunPair], flips: int, resamples: int) -> list[_Change]:
    changes = []
    for dataset, group in group_pairs(pairs):
        is_whole = len(group) == len(pairs)
        for measure, limits in gate.measures.items():
            sign = 1.0 if limits.direction == "higher" else -1.0
            values = [question_values(pair, measure) for pair in group]
            by_set = [sign * (candidate - base) for base, candidate in values if base.size]
            differences = np.concatenate(by_set)
            changes.append(
                _Change(
                    dataset=dataset,
                    measure=measure,
                    margin=limits.margin if len(group) > 1 else limits.set_margin,
                    decisive=is_whole,
                    difference=estimate_groups(by_set, resamples=resamples),
                    detectable=detectable_difference(differences),
                    p=worse_p(differences.tolist(), np.zeros(len(differences)).tolist(), flips=flips),
                )
            )
    return changes


def _check_changes(gate: Gate, changes: Sequence[_Change]) -> Iterator[Check]:
    adjusted = holm({index: change.p for index, change in enumerate(changes)})
    for index, change in enumerate(changes):
        difference, p = change.difference, adjusted[index]
        outcome: Outcome = "inconclusive"
        if difference.mean < -change.margin and p < gate.alpha:
            outcome = "fail"
        elif difference.low > -change.margin:
            outcome = "pass"
        yield Check(
            kind="change",
            dataset=change.dataset,
            measure=change.measure,
            outcome=outcome,
            value=difference.mean,
            decisive=change.decisive,
            reason=f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f}), "
            f"margin {change.margin:g}, p {p:.4f}, detectable {change.detectable:.4f}",
        )


def _check_floors(gate: Gate, runs: Sequence[MeasuredRun]) -> Iterator[Check]:
    """Checks the mean over all questions of all datasets; a measure that should be low has a ceiling instead."""
    for measure, limits in gate.measures.items():
        if limits.floor is None:
            continue
        mean = float(np.mean([value for run in runs for value in run.values[measure].values()]))
        is_kept = mean >= limits.floor if limits.direction == "higher" else mean <= limits.floor
        yield Check(
            kind="floor",
            dataset=", ".join(run.name for run in runs),
            measure=measure,
            outcome="pass" if is_kept else "fail",
            value=mean,
            reason=f"mean {mean:.4f}, limit {limits.floor:g}",
        )


def _check_ranges(gate: Gate, runs: Sequence[MeasuredRun]) -> Iterator[Check]:
    """Raises InvalidRunError if a dataset of a range was not measured."""
    by_name = {run.name: run for run in runs}
    for dataset, ranges in gate.ranges.items():
        if dataset not in by_name:
            raise InvalidRunError(f"ranges.{dataset} requires a run of this dataset; the run has {', '.join(by_name)}")
        run = by_name[dataset]
        check_coverage([run], list(ranges), gate.min_coverage)
        for measure, (low, high) in ranges.items():
            mean = float(np.mean(list(run.values[measure].values())))
            yield Check(
                kind="range",
                dataset=dataset,
                measure=measure,
                outcome="pass" if low <= mean <= high else "fail",
                value=mean,
                reason=f"mean {mean:.4f}, range {low:g} to {high:g}",
            )


def _check_p95(run: MeasuredRun, kind: str, limit: float) -> Check:
    """Raises InvalidRunError if the run has no times of this kind."""
    if not run.seconds.get(kind):
        raise InvalidRunError(f"max_p95_s.{kind} requires the times of {kind}; the run of {run.name} has none")
    p95 = float(np.percentile(list(run.seconds[kind].values()), 95))
    return Check(
        kind="p95",
        dataset=run.name,
        measure=f"{kind} p95",
        outcome="pass" if p95 <= limit else "fail",
        value=p95,
        reason=f"{p95:.3f} s, limit {limit:g} s",
    )


def _check_latency(pair: RunPair, kind: str, limit: float, resamples: int) -> Check:
    """Fails if the 95 % interval of the ratio is above the limit; inconclusive if only the ratio itself is."""
    ratio = _latency_ratio(pair, kind, resamples)
    outcome: Outcome = "inconclusive"
    reason = f"{ratio.mean:.2f} of the base's ({ratio.low:.2f} to {ratio.high:.2f}), limit {limit:g}"
    if pair.base.machine != pair.candidate.machine:
        reason = "the base was measured on another machine"
    elif ratio.low > limit:
        outcome = "fail"
    elif ratio.mean <= limit:
        outcome = "pass"
    return Check(
        kind="latency",
        dataset=pair.candidate.name,
        measure=f"{kind} p95",
        outcome=outcome,
        value=ratio.mean,
        reason=reason,
    )


def _latency_ratio(pair: RunPair, kind: str, resamples: int) -> Estimate:
    """The ratio of the 95th percentiles, with the percentiles of a bootstrap over questions as its interval."""
    base, candidate = pair.base.seconds[kind], pair.candidate.seconds[kind]
    times = np.array([[candidate[id], base[id]] for id in sorted(base.keys() & candidate.keys())])
    generator = np.random.default_rng(0)
    ratios = [_p95_ratio(times[generator.integers(len(times), size=len(times))]) for _ in range(resamples // 10)]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return Estimate(_p95_ratio(times), float(low), float(high))


def _p95_ratio(times: Floats) -> float:
    candidate, base = np.percentile(times, 95, axis=0)
    return float(candidate / base)
