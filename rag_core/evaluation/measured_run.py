"""The values of a finished evaluation, and the conditions under which two of them can be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rag_core.errors import InvalidRunError
from rag_core.evaluation.metrics import Grades

MIN_COVERAGE = 0.95
"""The lowest share of a measure's questions that must have been measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The evaluation of one profile on one dataset.

    `values` holds by measure the values of the questions; `failed` the questions that could not be measured. A question
    whose search failed is in both: its rankings count as 0. `seconds` holds the times of questions, for `search` and
    for `answer`. The names of `answer_measures` are those that a judge or a reference decides. `own_documents`: each
    question was answered from its own documents only. `conversation` says how questions with a history were searched.
    It is empty without such questions. The hashes, `judge`, `machine` and `finished`, the time when the run ended in
    ISO 8601, are empty if the run does not record them.
    """

    dataset: str
    split: str
    profile: str
    k: int
    grades: Mapping[str, Grades]
    values: Mapping[str, Mapping[str, float]]
    failed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    answer_measures: tuple[str, ...] = ()
    own_documents: bool = False
    conversation: str = ""
    dataset_hash: str = ""
    grades_hash: str = ""
    judge: str = ""
    machine: str = ""
    finished: str = ""

    @property
    def name(self) -> str:
        """The dataset, with the split unless it is `test`."""
        return self.dataset if self.split == "test" else f"{self.dataset}/{self.split}"

    def coverage(self, measure: str) -> float:
        """The share of the questions that could be measured; 0 for a measure that the run does not have."""
        failed, measured = self.failed.get(measure, frozenset()), self.values.get(measure, {}).keys()
        return len(measured - failed) / max(1, len(measured | failed))


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs of the same questions."""

    base: MeasuredRun
    candidate: MeasuredRun


def pair_runs(base: Sequence[MeasuredRun], candidate: Sequence[MeasuredRun]) -> list[RunPair]:
    """Pairs the runs of the same datasets. Raises InvalidRunError if they did not measure the same things."""
    base_by_name, by_name = ({run.name: run for run in runs} for runs in (base, candidate))
    _check_equal("datasets", ", ".join(sorted(base_by_name)), ", ".join(sorted(by_name)))
    pairs = [RunPair(base_by_name[name], by_name[name]) for name in sorted(by_name)]
    for pair in pairs:
        _check_comparable(pair.base, pair.candidate)
    return pairs


def check_coverage(runs: Sequence[MeasuredRun], measures: Sequence[str], minimum: float = MIN_COVERAGE) -> None:
    """Raises InvalidRunError if a measure is missing, or covers too few of its questions."""
    for run in runs:
        for measure in measures:
            if measure not in run.values and measure not in run.failed:
                raise InvalidRunError(
                    f"{run.name} has no measure {measure!r}; it has {', '.join(sorted(run.values)) or 'none'}"
                )
            if (coverage := run.coverage(measure)) < minimum:
                raise InvalidRunError(
                    f"{run.name}: {measure} must cover at least {minimum:.0%} of the questions, got {coverage:.1%}"
                )


def _check_comparable(base: MeasuredRun, candidate: MeasuredRun) -> None:
    """Raises InvalidRunError for other questions, grades, number of hits, or another judge.

    Older runs have no hashes, so questions and grades are compared themselves, too.
    """
    name = candidate.name
    _check_equal(f"{name}: numbers k of hits", base.k, candidate.k)
    if base.dataset_hash and candidate.dataset_hash:
        _check_equal(f"{name}: dataset hashes", base.dataset_hash, candidate.dataset_hash)
    if base.grades_hash and candidate.grades_hash:
        _check_equal(f"{name}: hashes of the grades", base.grades_hash, candidate.grades_hash)
    if base.answer_measures and candidate.answer_measures:
        _check_equal(f"{name}: judges", base.judge or "none", candidate.judge or "none")
        _check_equal(f"{name}: answers from own documents", base.own_documents, candidate.own_documents)
    if others := base.grades.keys() ^ candidate.grades.keys():
        raise InvalidRunError(f"{name}: {len(others)} questions are in one run only, the first is {min(others)!r}")
    if others := {id for id, grades in base.grades.items() if grades != candidate.grades[id]}:
        raise InvalidRunError(f"{name}: the grades of {len(others)} questions differ, the first is {min(others)!r}")


def _check_equal(subject: str, base: object, candidate: object) -> None:
    if base != candidate:
        raise InvalidRunError(f"only runs that measure the same can be compared: {subject} are {base} and {candidate}")
