"""How far the answers that people get are from those of an evaluation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance

from rag_core.telemetry.metrics import Metric
from rag_core.telemetry.text_format import format_metrics

Z_95 = 1.96
"""The quantile of the normal distribution for 95 % intervals."""
MIN_ANSWERS = 2
DRIFT = Metric(
    name="rag_live_score_drift",
    kind="gauge",
    labels=("measure", "profile"),
    help="Mean over the latest answers minus the mean over the answers of the last run.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerScore:
    """What is known of an answer without a reference: its `finish` and its confidence, or None."""

    finish: str
    confidence: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The mean of a measure over `live_answers`, minus that over `run_answers`, with its 95 % interval."""

    measure: str
    live: float
    live_answers: int
    run: float
    run_answers: int
    difference: float
    low: float
    high: float


def measure_drift(live: Sequence[AnswerScore], run: Sequence[AnswerScore]) -> list[Drift]:
    """The drift of abstention and of confidence. A measure with fewer than two values on a side is left out."""
    live_values, run_values = _values_by_measure(live), _values_by_measure(run)
    return [
        _compare(measure, live_values[measure], run_values[measure])
        for measure in live_values
        if min(len(live_values[measure]), len(run_values[measure])) >= MIN_ANSWERS
    ]


def format_drifts(drifts: Iterable[Drift], profile: str) -> str:
    """The drifts as gauges in Prometheus' text format."""
    return format_metrics(
        {DRIFT: [({"measure": drift.measure, "profile": profile}, drift.difference) for drift in drifts]}
    )


def _values_by_measure(scores: Sequence[AnswerScore]) -> Mapping[str, list[float]]:
    return {
        "abstention": [float(score.finish == "abstained") for score in scores],
        "confidence": [score.confidence for score in scores if score.confidence is not None],
    }


def _compare(measure: str, live: Sequence[float], run: Sequence[float]) -> Drift:
    """The difference of two means. Its interval is Welch's, with the normal distribution."""
    difference = fmean(live) - fmean(run)
    margin = Z_95 * sqrt(variance(live) / len(live) + variance(run) / len(run))
    return Drift(
        measure=measure,
        live=fmean(live),
        live_answers=len(live),
        run=fmean(run),
        run_answers=len(run),
        difference=difference,
        low=difference - margin,
        high=difference + margin,
    )
