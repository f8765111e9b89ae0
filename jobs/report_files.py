"""The report of a finished run for people, and its measures by question as JSON lines."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.evaluation_runs import HTML, read_finished_run, read_report, read_run, read_runs
from jobs.promotion import PROMOTED, find_base, list_past_runs, pair_with_base
from rag_core.errors import InvalidRunError
from rag_core.evaluation.comparison import common_measures, compare_runs
from rag_core.evaluation.finished_run import NDCG, FinishedQuestion, FinishedRun
from rag_core.evaluation.gate import Gate, check_run
from rag_core.evaluation.measured_run import MeasuredRun, RunPair, pair_runs
from rag_core.evaluation.report_page.base_comparison import BaseComparison
from rag_core.evaluation.report_page.history import PastRun
from rag_core.evaluation.report_page.page import ReportPage, build_page, render_html, render_markdown
from rag_core.types import DEFAULT_TENANT

QUALITY_MEASURES: Mapping[str, tuple[str, ...]] = {
    "faithfulness": ("rubric_faithfulness", "ragas_faithfulness", "faithfulness"),
    "relevance": ("rubric_relevance", "ragas_answer_relevancy", "answer_relevancy"),
    "completeness": ("rubric_completeness",),
}
"""The measures for each quality of an answer; the first that was measured counts."""
MARKDOWN, LINES = "report.md", "per_question.jsonl"


def write_report(folder: Path, base: str, gate: Gate, html: Path | None = None, markdown: Path | None = None) -> Path:
    """Writes the report of the run in the folder, there or to the files given; returns the path of the HTML.

    `base` is a folder, `promoted`, or empty for a report without a comparison.
    """
    run, measured = read_finished_run(folder), read_run(folder)
    page = _build_page(folder, run, measured, compare_with_base(measured, base, gate) if base else None)
    html_file = html or folder / HTML
    html_file.write_text(render_html(page), encoding="utf-8")
    (markdown or folder / MARKDOWN).write_text(render_markdown(page), encoding="utf-8")
    lines = (json.dumps(describe_question(question), ensure_ascii=False) + "\n" for question in run.questions)
    (folder / LINES).write_text("".join(lines), encoding="utf-8")
    return html_file


def compare_with_base(run: MeasuredRun, base: str, gate: Gate) -> BaseComparison:
    """The comparison of `rag compare` and the verdict of `rag gate`, for this dataset alone.

    A run that cannot be judged is not an error.
    """
    name = "the promoted run" if base == PROMOTED else base
    try:
        pairs = _pair_with_base(run, base)
        rows = compare_runs(pairs, common_measures(pairs))
    except InvalidRunError as error:
        return BaseComparison(base=name, refusal=str(error))
    try:
        ranges = {dataset: limits for dataset, limits in gate.ranges.items() if dataset == run.name}
        result = check_run(gate.model_copy(update={"ranges": ranges}), [run], pairs)
        return BaseComparison(base=name, rows=rows, gate=result)
    except InvalidRunError as error:
        return BaseComparison(base=name, rows=rows, refusal=str(error))


def _pair_with_base(run: MeasuredRun, base: str) -> list[RunPair]:
    """Pairs the run with the one of its dataset. Other datasets of the base have reports of their own."""
    if base == PROMOTED:
        return pair_with_base([run], base, needs_base=True)
    bases = read_runs(Path(base))
    return pair_runs([other for other in bases if other.name == run.name] or bases, [run])


def describe_question(question: FinishedQuestion) -> dict[str, Any]:
    """The measures of one question in the shape of the requirements; null for one that was not measured."""
    hits = question.measures
    answer: Mapping[str, float] = question.answer.measures if question.answer else {}
    return {
        "query_id": question.id,
        "metrics": {
            "recall_at_k": {"5": hits.get("recall@5"), "10": hits.get("recall@10")},
            "mrr": hits.get("mrr"),
            "ndcg": hits.get(NDCG),
            "map": hits.get("map"),
        },
        "answer_quality": {
            quality: next((answer[name] for name in names if name in answer), None)
            for quality, names in QUALITY_MEASURES.items()
        },
    }


def _build_page(folder: Path, run: FinishedRun, measured: MeasuredRun, comparison: BaseComparison | None) -> ReportPage:
    promoted, tenant = find_base(measured), run.report.get("tenant", DEFAULT_TENANT)
    past = [
        earlier
        for path in list_past_runs(measured, tenant)
        for earlier in _read_past_run(path, is_promoted=path == promoted)
    ]
    past.sort(key=lambda earlier: earlier.when)
    return build_page(run, comparison, [*past, *_read_past_run(folder, is_promoted=False)])


def _read_past_run(folder: Path, *, is_promoted: bool) -> Iterator[PastRun]:
    """Yields nothing for a run without nDCG@10."""
    report = read_report(folder)
    if estimate := FinishedRun(report=report, questions=()).measures.get(NDCG):
        when = report.get("finished", "")
        yield PastRun(name=folder.name, when=when, value=estimate["mean"], is_promoted=is_promoted)
