"""The report on an experiment: is the split right, is the treatment better, and does it break a guardrail?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erfc, exp, sqrt

import numpy as np

from rag_core.errors import UsageError
from rag_core.evaluation.comparison import ALPHA
from rag_core.evaluation.metrics import unique_ids
from rag_core.evaluation.sequential import interval_radius, log_likelihood_ratio
from rag_core.evaluation.significance import Estimate, Floats, holm
from rag_core.storage.exposures import Exposure

MIN_CONVERSATIONS = 30
"""The conversations of each variant from which their means are about normally distributed."""
MISMATCH_ALPHA = 0.001
"""The p below which the counts of conversations contradict the intended split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An exposure with the quality of its answer, such as a judge's score; None if it was not measured."""

    exposure: Exposure
    quality: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """A share of questions that the treatment must not raise; `p` is one-sided, adjusted for all guardrails."""

    name: str
    control: float
    treatment: float
    p: float

    @property
    def is_broken(self) -> bool:
        return self.p < ALPHA


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentReport:
    """The state of an experiment.

    `control` and `treatment` count conversations. `difference` is the treatment's quality minus the control's, with an
    interval that is valid at every look, and `p` likewise; None before MIN_CONVERSATIONS of each were measured.
    `coverage` is the share of questions whose quality was measured.
    """

    control: int
    treatment: int
    split_p: float
    difference: Estimate | None
    p: float
    coverage: float
    guardrails: Sequence[Guardrail]
    recommendation: str


def report_experiment(
    observations: Sequence[Observation], effect: float, share: float | None = None
) -> ExperimentReport:
    """Reports on the observations of one experiment, oldest first.

    `effect` is the difference in quality that is worth finding, `share` the intended share of the treatment; by default
    that of the last observation. Values are means by conversation, because the questions of a conversation are alike.
    Raises UsageError if a variant has no observation, or if the share is 0 or 1.
    """
    control, treatment = (
        [row for row in observations if row.exposure.variant == variant] for variant in ("control", "treatment")
    )
    if not control or not treatment:
        got = f"{len(control)} and {len(treatment)}"
        raise UsageError(f"an experiment requires observations of control and treatment, got {got}")
    intended = observations[-1].exposure.share if share is None else share
    if not 0 < intended < 1:
        raise UsageError(f"the share of an experiment must be above 0 and below 1, got {intended:g}; pass --share")
    counts = [len(unique_ids(row.exposure.conversation for row in rows)) for rows in (control, treatment)]
    split_p = sample_ratio_p(counts[0], counts[1], intended)
    difference, p = _compare_quality(control, treatment, effect)
    guardrails = _check_guardrails(control, treatment)
    return ExperimentReport(
        control=counts[0],
        treatment=counts[1],
        split_p=split_p,
        difference=difference,
        p=p,
        coverage=sum(row.quality is not None for row in observations) / len(observations),
        guardrails=guardrails,
        recommendation=_recommend(split_p, difference, guardrails),
    )


def sample_ratio_p(control: int, treatment: int, share: float) -> float:
    """The p of the counts if the treatment gets `share` of the conversations: Pearson's chi-square of two cells."""
    expected = share * (control + treatment)
    deviation = (treatment - expected) ** 2
    return erfc(sqrt((deviation / expected + deviation / (control + treatment - expected)) / 2))


def _compare_quality(
    control: Sequence[Observation], treatment: Sequence[Observation], effect: float
) -> tuple[Estimate | None, float]:
    before, after = (
        _conversation_means([row for row in rows if row.quality is not None], lambda row: row.quality or 0.0)
        for rows in (control, treatment)
    )
    if min(len(before), len(after)) < MIN_CONVERSATIONS or not (variance := _difference_variance(before, after)):
        return None, 1.0
    difference = after.mean() - before.mean()
    radius = float(interval_radius(variance, effect))
    p = exp(-max(0.0, float(log_likelihood_ratio(difference, variance, effect))))
    return Estimate(float(difference), float(difference) - radius, float(difference) + radius), p


def _check_guardrails(control: Sequence[Observation], treatment: Sequence[Observation]) -> list[Guardrail]:
    """Errors, abstentions, and questions that are slower than the 95th percentile of both variants."""
    slow = float(np.percentile([row.exposure.seconds for row in (*control, *treatment)], 95))
    rules: dict[str, Callable[[Observation], float]] = {
        "errors": lambda row: float(bool(row.exposure.error)),
        "abstentions": lambda row: float(row.exposure.abstained),
        "slow answers": lambda row: float(row.exposure.seconds > slow),
    }
    shares = {
        name: (_conversation_means(control, rule), _conversation_means(treatment, rule)) for name, rule in rules.items()
    }
    adjusted = holm({name: _higher_p(*groups) for name, groups in shares.items()})
    return [
        Guardrail(name=name, control=float(before.mean()), treatment=float(after.mean()), p=adjusted[name])
        for name, (before, after) in shares.items()
    ]


def _conversation_means(rows: Sequence[Observation], measure: Callable[[Observation], float]) -> Floats:
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row.exposure.conversation, []).append(measure(row))
    return np.array([np.mean(group) for group in values.values()])


def _difference_variance(before: Floats, after: Floats) -> Floats:
    variance: Floats = before.var(ddof=1) / len(before) + after.var(ddof=1) / len(after)
    return variance


def _higher_p(before: Floats, after: Floats) -> float:
    """The one-sided p of the hypothesis that the mean is not higher afterwards, by Welch's statistic."""
    difference = float(after.mean() - before.mean())
    if difference <= 0 or min(len(before), len(after)) < MIN_CONVERSATIONS:
        return 1.0
    variance = float(_difference_variance(before, after))
    return erfc(difference / sqrt(2 * variance)) / 2 if variance else 0.0


def _recommend(split_p: float, difference: Estimate | None, guardrails: Sequence[Guardrail]) -> str:
    broken = [guardrail.name for guardrail in guardrails if guardrail.is_broken]
    if split_p < MISMATCH_ALPHA:
        return "Do not use these figures: the split of conversations is not the intended one. Find out what loses some."
    if broken:
        return f"Stop the treatment: it raises the share of {', '.join(broken)}."
    if difference and difference.low > 0:
        return "Adopt the treatment: its quality is higher, and no guardrail is broken."
    if difference and difference.high < 0:
        return "Stop the treatment: its quality is lower."
    return "Continue: no difference was shown yet."
