"""The first thing that a report shows: whether the run passed, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rag_core.evaluation.finished_run import FinishedRun
from rag_core.evaluation.gate import Outcome
from rag_core.evaluation.measured_run import MIN_COVERAGE
from rag_core.evaluation.report_page.base_comparison import BaseComparison
from rag_core.evaluation.report_page.section import format_share

MAX_NAMES = 3
"""The number of measures that a sentence names."""
State: TypeAlias = Literal["pass", "fail", "inconclusive", "valid", "invalid"]

GATE_SENTENCES: Mapping[Outcome, str] = {
    "pass": "A loss larger than the margin is excluded.",
    "fail": "The run breaks a limit of the gate.",
    "inconclusive": "The questions are too few to exclude a loss.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`reasons` are the checks of the gate that did not pass, or else all of them, and what makes a run invalid."""

    state: State
    sentence: str
    reasons: Sequence[str] = ()


def build_verdict(run: FinishedRun, comparison: BaseComparison | None) -> Verdict:
    """The gate's verdict if there is a base; without one, whether enough questions were measured."""
    gaps = _describe_gaps(run)
    if comparison and comparison.refusal:
        return Verdict(state="invalid", sentence="The run cannot be judged.", reasons=[comparison.refusal, *gaps])
    if comparison and comparison.gate:
        checks = comparison.gate.checks
        listed = [check for check in checks if check.outcome != "pass"] or checks
        reasons = [f"{check.dataset}, {check.measure}: {check.outcome}, {check.reason}" for check in listed]
        outcome = comparison.gate.outcome
        return Verdict(state=outcome, sentence=GATE_SENTENCES[outcome], reasons=[*reasons, *gaps])
    if gaps or not run.measures:
        return Verdict(state="invalid", sentence="Too few questions were measured.", reasons=gaps)
    return Verdict(state="valid", sentence="Enough questions were measured. Without a base, nothing is compared.")


def _describe_gaps(run: FinishedRun) -> list[str]:
    """One sentence for all measures with the same coverage, such as those of the hits."""
    names: dict[float, list[str]] = {}
    for name, values in run.measures.items():
        if values["coverage"] < MIN_COVERAGE:
            names.setdefault(values["coverage"], []).append(name)
    return [
        f"{_name_measures(same)} {format_share(coverage)} of the questions; at least {MIN_COVERAGE:.0%} are required"
        for coverage, same in names.items()
    ]


def _name_measures(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} covers"
    more = f" and {len(names) - MAX_NAMES} more measures" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more} cover"
