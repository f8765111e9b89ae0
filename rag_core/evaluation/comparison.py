"""The comparison of two runs over the same questions: each measure's difference, its significance, and advice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rag_core.evaluation.measured_run import RunPair
from rag_core.evaluation.significance import (
    TIE,
    Estimate,
    Floats,
    detectable_difference,
    estimate_groups,
    holm,
    randomisation_p,
)

COMPARED_MEASURES = ("ndcg@10", "recall@10", "recall@100", "mrr", "map")
"""The measures of rankings that are compared unless others are named. All measures of answers are compared, too."""
ALL_DATASETS = "all"
"""The name of the questions of several datasets together."""
ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Values compared with others of the same questions.

    `p` is two-sided. `detectable` is the smallest difference that so many questions show with a power of 80 %.
    """

    difference: Estimate
    p: float
    better: int
    worse: int
    equal: int
    detectable: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMeasure:
    """A measure of the candidate compared with the base.

    `adjusted_p` accounts for the number of measures. `coverage` is the lowest share of questions that a run measured.
    """

    dataset: str
    measure: str
    base: float
    candidate: float
    comparison: Comparison
    adjusted_p: float
    coverage: float

    @property
    def is_significant(self) -> bool:
        return self.adjusted_p < ALPHA


def compare_values(values: Floats, other_values: Floats) -> Comparison:
    return _compare_groups([values], [other_values])


def common_measures(pairs: Sequence[RunPair]) -> list[str]:
    """The measures that are compared unless others are named, as far as all runs have them."""
    runs = [run for pair in pairs for run in (pair.base, pair.candidate)]
    names = dict.fromkeys((*COMPARED_MEASURES, *(name for run in runs for name in run.answer_measures)))
    return [name for name in names if all(name in run.values for run in runs)]


def compare_runs(pairs: Sequence[RunPair], measures: Sequence[str]) -> list[ComparedMeasure]:
    """One row per measure and dataset; for several datasets, the rows of all their questions are first.

    A measure without a common question in a dataset has no row there.
    """
    groups = dict(group_pairs(pairs))
    values = {
        (dataset, measure): [question_values(pair, measure) for pair in group]
        for dataset, group in groups.items()
        for measure in measures
    }
    comparisons = {
        key: _compare_groups([candidate for _, candidate in by_set], [base for base, _ in by_set])
        for key, by_set in values.items()
        if any(base.size for base, _ in by_set)
    }
    adjusted = holm({key: comparison.p for key, comparison in comparisons.items()})
    return [
        ComparedMeasure(
            dataset=dataset,
            measure=measure,
            base=float(np.concatenate([base for base, _ in values[dataset, measure]]).mean()),
            candidate=float(np.concatenate([candidate for _, candidate in values[dataset, measure]]).mean()),
            comparison=comparison,
            adjusted_p=adjusted[dataset, measure],
            coverage=min(run.coverage(measure) for pair in groups[dataset] for run in (pair.base, pair.candidate)),
        )
        for (dataset, measure), comparison in comparisons.items()
    ]


def group_pairs(pairs: Sequence[RunPair]) -> list[tuple[str, Sequence[RunPair]]]:
    """All pairs together if there are several, then each of them."""
    together = [(ALL_DATASETS, pairs)] if len(pairs) > 1 else []
    return [*together, *((pair.candidate.name, [pair]) for pair in pairs)]


def question_values(pair: RunPair, measure: str) -> tuple[Floats, Floats]:
    """The values of the base and of the candidate, for the questions that both measured."""
    base, candidate = pair.base.values.get(measure, {}), pair.candidate.values.get(measure, {})
    ids = sorted(base.keys() & candidate.keys())
    return np.array([base[id] for id in ids]), np.array([candidate[id] for id in ids])


def recommend(rows: Sequence[ComparedMeasure]) -> str:
    """Advice in plain words. With several datasets it depends on the rows of all their questions."""
    deciding = [row for row in rows if row.dataset == rows[0].dataset]
    gains = [row.measure for row in deciding if row.is_significant and row.comparison.difference.mean > 0]
    losses = [row.measure for row in deciding if row.is_significant and row.comparison.difference.mean < 0]
    if gains and losses:
        return f"B is better in {', '.join(gains)} and worse in {', '.join(losses)}: decide which of them matters."
    if gains:
        return f"Take B: it is better in {', '.join(gains)}, and no measure shows a loss."
    if losses:
        return f"Keep A: B is worse in {', '.join(losses)}."
    if not any(row.comparison.better or row.comparison.worse for row in deciding):
        return "No difference: all values are equal."
    vaguest = max(deciding, key=lambda row: row.comparison.detectable)
    return (
        f"No difference was shown. These questions would show one of {vaguest.comparison.detectable:.4f} in "
        f"{vaguest.measure} with a power of 80 %; use more of them to find a smaller one."
    )


def _compare_groups(groups: Sequence[Floats], other_groups: Sequence[Floats]) -> Comparison:
    """Compares the values of all groups, each of which is one dataset."""
    by_group = [values - other_values for values, other_values in zip(groups, other_groups, strict=True)]
    differences = np.concatenate(by_group)
    return Comparison(
        difference=estimate_groups([group for group in by_group if group.size]),
        p=randomisation_p(np.concatenate(groups).tolist(), np.concatenate(other_groups).tolist()),
        better=int((differences >= TIE).sum()),
        worse=int((differences <= -TIE).sum()),
        equal=int((np.abs(differences) < TIE).sum()),
        detectable=detectable_difference(differences),
    )
