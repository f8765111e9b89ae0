"""The sections of a report. A section without data is None."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from rag_core.evaluation.answer_report import ANSWERABLE, FAILED, UNANSWERABLE, UNKNOWN
from rag_core.evaluation.comparison import ALPHA, recommend
from rag_core.evaluation.feedback import cohen_kappa
from rag_core.evaluation.finished_run import FinishedRun
from rag_core.evaluation.report_page.base_comparison import BaseComparison
from rag_core.evaluation.report_page.charts import draw_curves, draw_history, draw_interval
from rag_core.evaluation.report_page.section import (
    NO_CHART,
    Section,
    Table,
    format_difference,
    format_difference_interval,
    format_interval,
    format_share,
    format_time,
)
from rag_core.evaluation.significance import Estimate

SHOWN_MEASURES = ("ndcg@10", "recall@10", "recall@100", "mrr", "map", "success@5")
STAGE_MEASURES = ("ndcg@10", "recall@10", "recall@100", "mrr")
REPLY_KINDS = ("answer", "passages", "refusal", FAILED)
MAX_REASONS = 5
MAX_RANK = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """An earlier run of the same profile and dataset. `when` is empty if it is unknown."""

    name: str
    when: str
    value: float
    is_promoted: bool = False


def build_headline(run: FinishedRun, comparison: BaseComparison | None) -> Section | None:
    """The measures with their coverage, and their differences from the base if there is one."""
    answers = run.report.get("answers", {}).get("measures", {})
    measures = {name: values for name, values in run.measures.items() if name in SHOWN_MEASURES or name in answers}
    if not measures:
        return None
    rows = [_headline_cells(name, values) for name, values in measures.items()]
    columns: tuple[str, ...] = ("measure", "questions", "coverage", "mean", "95 % CI")
    note = "The intervals are those of a bootstrap over questions."
    table = Table(
        caption="measures",
        columns=columns,
        rows=rows,
        plots=[_plot(name, values) for name, values in measures.items()],
        plot_heading="0 to 1",
    )
    if comparison and comparison.rows:
        note += (
            f" A is the base, {comparison.base}; B is this run. {recommend(comparison.rows)} The p-values are of a "
            "paired randomisation test, adjusted for the number of measures; the gate adjusts for its own measures "
            "only. A difference that is detectable is found with a power of 80 %."
        )
        columns += ("difference", "its 95 % CI", "p (Holm)", "detectable")
        rows = [row + _difference_cells(name, comparison) for name, row in zip(measures, rows, strict=True)]
        table = Table(caption="measures", columns=columns, rows=rows)
    return Section(id="measures", title="Measures", note=note, tables=[table])


def build_stages(run: FinishedRun) -> Section | None:
    """The rankings of each stage, and the share of questions that have a relevant document up to each rank."""
    stages = {name: values for name, values in run.report.get("stages", {}).items() if values["measures"]}
    if not stages:
        return None
    rows = [
        (
            name,
            *(_format_estimate(values["measures"].get(measure)) for measure in STAGE_MEASURES),
            str(values["errors"]),
        )
        for name, values in stages.items()
    ]
    table = Table(caption="stages", columns=("stage", *STAGE_MEASURES, "errors"), rows=rows)
    curves = find_curves(run)
    title = "Share of questions with a relevant document among the first ranks, by stage"
    headroom = run.report.get("headroom")
    note = f"{title}. The union is the best order of what all legs found."
    if headroom is not None:
        note += f" A perfect order would add {headroom:.3f} nDCG@10."
    chart = draw_curves(curves, title) if curves else NO_CHART
    return Section(id="stages", title="Stages of the search", note=note, chart=chart, tables=[table])


def find_curves(run: FinishedRun) -> dict[str, list[float]]:
    """By stage, the shares of questions whose first relevant document has at most the rank 1, 2, 3, ..."""
    ranks = [question.ranks for question in run.searched]
    stages = dict.fromkeys(stage for by_stage in ranks for stage in by_stage)
    last = min(MAX_RANK, run.report.get("k", MAX_RANK))
    curves = {}
    for stage in stages:
        firsts = Counter(by_stage.get(stage) for by_stage in ranks)
        counts = np.cumsum([firsts[rank] for rank in range(1, last + 1)])
        curves[stage] = (counts / len(ranks)).tolist()
    return curves


def build_answers(run: FinishedRun) -> Section | None:
    """The kinds of replies, by whether the corpus answers the question."""
    replies = run.report.get("answers", {}).get("replies", {})
    if not replies:
        return None
    rows = [
        (side, *(str(replies[side].get(kind, 0)) for kind in REPLY_KINDS))
        for side in (ANSWERABLE, UNANSWERABLE, UNKNOWN)
        if side in replies
    ]
    note = (
        "An answerable question should be answered, an unanswerable one refused. Passages are shown when the "
        "pipeline is not sure; they claim nothing."
    )
    table = Table(caption="questions by reply", columns=("the corpus", *REPLY_KINDS), rows=rows)
    return Section(id="answers", title="Answers and refusals", note=note, tables=[table])


def build_judge(run: FinishedRun) -> Section | None:
    """The judge's coverage, its agreement with the references, and the reasons for grades that are missing."""
    failures = Counter(
        (name, reason)
        for question in run.answered
        if question.answer
        for name, reason in question.answer.failures.items()
    )
    facts = [("judge", _join(run.report.get("judge") or {}))]
    grades = [
        (question.answer.measures["judge_supported"] >= 0.5, question.answer.measures["contains_reference"] >= 0.5)
        for question in run.answered
        if question.answer and {"judge_supported", "contains_reference"} <= question.answer.measures.keys()
    ]
    if not grades and not failures:
        return None
    if grades:
        facts += [("graded answers with references", str(len(grades))), *_agreement_facts(grades)]
    tables = [Table(caption="judge", columns=("fact", "value"), rows=facts)]
    if failures:
        rows = [(name, str(count), reason) for (name, reason), count in failures.most_common(MAX_REASONS)]
        tables.append(Table(caption="not measured", columns=("measure", "answers", "reason"), rows=rows))
    return Section(id="judge", title="Judge", tables=tables)


def build_latency(run: FinishedRun) -> Section | None:
    """Percentiles over the questions in which a stage ran."""
    times: dict[str, list[float]] = {}
    for question in run.questions:
        for stage, seconds in question.timings.items():
            times.setdefault(stage, []).append(seconds)
    searches = [question.seconds for question in run.questions if question.seconds is not None]
    answers = [question.answer.seconds for question in run.answered if question.answer]
    times |= {name: seconds for name, seconds in (("whole search", searches), ("whole answer", answers)) if seconds}
    if not times:
        return None
    rows = [
        (name, str(len(seconds)), *(f"{1000 * value:.1f}" for value in np.percentile(seconds, [50, 95, 99])))
        for name, seconds in times.items()
    ]
    columns = ("stage", "questions", "p50 ms", "p95 ms", "p99 ms")
    return Section(id="latency", title="Latency", tables=[Table(caption="latency", columns=columns, rows=rows)])


def build_history(past: Sequence[PastRun]) -> Section | None:
    """The stored runs of the same profile and dataset, oldest first, with this run as the last one."""
    if len(past) < 2:
        return None
    rows = [
        (format_time(run.when) if run.when else "", run.name, f"{run.value:.3f}", "promoted" if run.is_promoted else "")
        for run in past
    ]
    return Section(
        id="history",
        title="History",
        note="nDCG@10 of the stored runs of this profile and dataset; the last one is this run.",
        chart=draw_history([run.value for run in past], f"nDCG@10 of {len(past)} runs, oldest first"),
        tables=[Table(caption="history", columns=("finished", "run", "nDCG@10", ""), rows=rows)],
    )


def build_reproducibility(report: Mapping[str, Any]) -> Section:
    """What is needed to measure the same again."""
    names = (
        *("command", "commit", "finished", "profile", "pipeline_version", "dataset", "split", "dataset_hash"),
        *("grades_hash", "judge", "k", "callers", "own_documents", "machine", "versions"),
    )
    rows = [(name.replace("_", " "), _join(report[name])) for name in names if report.get(name) not in (None, "", {})]
    note = "All random numbers depend on fixed seeds."
    table = Table(caption="reproducibility", columns=("fact", "value"), rows=rows)
    return Section(id="reproducibility", title="How to measure this again", note=note, tables=[table])


def _headline_cells(name: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    coverage = (str(values["questions"]), format_share(values["coverage"]))
    if values["mean"] is None:
        return (name, *coverage, "", "")
    return (name, *coverage, f"{values['mean']:.3f}", format_interval(_estimate(values)))


def _plot(name: str, values: Mapping[str, Any]) -> Markup:
    if values["mean"] is None:
        return NO_CHART
    return draw_interval(_estimate(values), 0, 1, f"{name}: {values['mean']:.3f}")


def _difference_cells(name: str, comparison: BaseComparison) -> tuple[str, ...]:
    row = comparison.row(name)
    if row is None:
        return ("", "", "", "")
    difference, mark = row.comparison.difference, " *" if row.adjusted_p < ALPHA else ""
    return (
        format_difference(difference.mean),
        format_difference_interval(difference),
        f"{row.adjusted_p:.4f}{mark}",
        f"{row.comparison.detectable:.3f}",
    )


def _agreement_facts(grades: Sequence[tuple[bool, bool]]) -> list[tuple[str, str]]:
    kappa = cohen_kappa([(str(supported), str(is_right)) for supported, is_right in grades])
    both = sum(supported and is_right for supported, is_right in grades)
    return [
        ("supported, and contains a reference", str(both)),
        (
            "supported, but contains no reference",
            str(sum(supported and not is_right for supported, is_right in grades)),
        ),
        (
            "not supported, but contains a reference",
            str(sum(is_right and not supported for supported, is_right in grades)),
        ),
        ("Cohen's kappa of support and references", "undefined" if kappa is None else f"{kappa:.2f}"),
    ]


def _estimate(values: Mapping[str, Any]) -> Estimate:
    return Estimate(values["mean"], values["low"], values["high"])


def _format_estimate(values: Mapping[str, float] | None) -> str:
    return f"{values['mean']:.3f} ({values['low']:.2f} to {values['high']:.2f})" if values else ""


def _join(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_join(inner)}" for name, inner in value.items())
    return str(value)
