"""The sections of a report. A section without data is None."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from rag_core.evaluation.answer_report import ANSWERABLE, FAILED, UNANSWERABLE, UNKNOWN
from rag_core.evaluation.finished_run import FinishedRun
from rag_core.evaluation.report_page.charts import draw_curves
from rag_core.evaluation.report_page.section import NO_CHART, Section, Table, join_values

STAGE_MEASURES = ("ndcg@10", "recall@10", "recall@100", "mrr")
REPLY_KINDS = ("answer", "passages", "refusal", FAILED)
MAX_RANK = 100


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
    """The shares of questions whose first relevant document has at most the rank 1, 2, 3, ..., by stage."""
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


def build_reproducibility(report: Mapping[str, Any]) -> Section:
    """What is needed to measure the same again."""
    names = (
        *("command", "commit", "finished", "profile", "pipeline_version", "dataset", "split", "dataset_hash"),
        *("grades_hash", "padding", "conversation", "judge", "k", "callers", "own_documents", "machine", "versions"),
    )
    rows = [
        (name.replace("_", " "), join_values(report[name]))
        for name in names
        if report.get(name) not in (None, "", {}, [])
    ]
    note = "All random numbers depend on fixed seeds."
    table = Table(caption="reproducibility", columns=("fact", "value"), rows=rows)
    return Section(id="reproducibility", title="How to measure this again", note=note, tables=[table])


def _format_estimate(values: Mapping[str, float] | None) -> str:
    return f"{values['mean']:.3f} ({values['low']:.2f} to {values['high']:.2f})" if values else ""
