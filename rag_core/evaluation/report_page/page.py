"""The report of a run as values, and as HTML and Markdown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from rag_core.evaluation.finished_run import NDCG, FinishedQuestion, FinishedRun
from rag_core.evaluation.report_page.base_comparison import BaseComparison
from rag_core.evaluation.report_page.charts import draw_interval
from rag_core.evaluation.report_page.headline import build_headline
from rag_core.evaluation.report_page.history import PastRun, build_history
from rag_core.evaluation.report_page.judge_health import build_judge
from rag_core.evaluation.report_page.losses import LABELS, Losses, build_losses
from rag_core.evaluation.report_page.section import (
    Section,
    format_difference,
    format_difference_interval,
    format_interval,
    format_share,
    format_time,
)
from rag_core.evaluation.report_page.sections import (
    build_answers,
    build_latency,
    build_reproducibility,
    build_stages,
)
from rag_core.evaluation.report_page.strata import build_strata
from rag_core.evaluation.report_page.verdict import Verdict, build_verdict
from rag_core.evaluation.significance import Estimate
from rag_core.evaluation.worst_questions import WorstQuestion, find_loss, find_worst

FIGURES = (
    *(NDCG, "recall@10", "contains_reference", "token_f1", "rubric_faithfulness", "ragas_faithfulness"),
    *("faithfulness", "citation_precision", "judge_supported", "abstention"),
)
"""The measures that are shown first, as far as the run has them."""
MAX_FIGURES = 5
MAX_TEXT = 110
"""The characters of a question in the table of all questions: with them, 2,000 questions fit into 1 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measure in large digits. `change` is its difference from the base, `trend` a significant one in words."""

    name: str
    value: str
    interval: str
    coverage: str
    plot: Markup
    change: str = ""
    change_interval: str = ""
    trend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionLine:
    """A row of the table of all questions."""

    id: str
    text: str
    score: str
    rank: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    title: str
    facts: Sequence[str]
    verdict: Verdict
    figures: Sequence[Figure]
    losses: Losses | None
    worst: Sequence[WorstQuestion]
    sections: Sequence[Section]
    questions: Sequence[QuestionLine]


def build_page(run: FinishedRun, comparison: BaseComparison | None = None, past: Sequence[PastRun] = ()) -> ReportPage:
    report = run.report
    sections = (
        build_headline(run, comparison),
        build_stages(run),
        build_answers(run),
        build_judge(run),
        build_strata(run),
        build_latency(run),
        build_history(past),
        build_reproducibility(report),
    )
    figures = [name for name in FIGURES if run.measures.get(name, {}).get("mean") is not None]
    return ReportPage(
        title=f"{report['dataset']} with {report['profile']}",
        facts=[
            f"{len(run.questions)} questions",
            f"coverage {format_share(run.coverage)}",
            *([f"compared with {comparison.base}"] if comparison else []),
            *([format_time(report["finished"])] if report.get("finished") else []),
        ],
        verdict=build_verdict(run, comparison),
        figures=[_build_figure(run, name, comparison) for name in figures[:MAX_FIGURES]],
        losses=build_losses(run),
        worst=find_worst(run),
        sections=[section for section in sections if section],
        questions=[_build_line(question, is_labelled="waterfall" in report) for question in run.questions],
    )


def render_html(page: ReportPage) -> str:
    return _render("report.html", page)


def render_markdown(page: ReportPage) -> str:
    return _render("report.md", page)


def _build_figure(run: FinishedRun, name: str, comparison: BaseComparison | None) -> Figure:
    values = run.measures[name]
    estimate = Estimate(values["mean"], values["low"], values["high"])
    figure = Figure(
        name=name,
        value=f"{estimate.mean:.3f}",
        interval=format_interval(estimate),
        coverage=f"n {values['questions']}, coverage {format_share(values['coverage'])}",
        plot=draw_interval(estimate, 0, 1, f"{name}: {estimate.mean:.3f}, {format_interval(estimate)}"),
    )
    row = comparison.row(name) if comparison else None
    if not comparison or not row:
        return figure
    difference, trend = row.comparison.difference, ""
    if row.is_significant or comparison.is_loss(name):
        trend = "better" if difference.mean > 0 else "worse"
    return replace(
        figure,
        change=format_difference(difference.mean),
        change_interval=format_difference_interval(difference),
        trend=trend,
    )


def _build_line(question: FinishedQuestion, is_labelled: bool) -> QuestionLine:
    """The row of a question. If failures are labelled, one without a label has a reason only if it has an error."""
    has_reason = question.is_failed or (not is_labelled and question.score < 1)
    rank = question.ranks.get("final")
    is_long = len(question.text) > MAX_TEXT
    return QuestionLine(
        id=question.id,
        text=question.text[: MAX_TEXT - 1] + "…" if is_long else question.text,
        score=f"{question.score:.3f}",
        rank=str(rank) if rank else "none" if question.grades else "",
        label=question.failure or (find_loss(question) if has_reason else ""),
    )


def _render(template: str, page: ReportPage) -> str:
    environment = Environment(
        loader=PackageLoader("rag_core.evaluation.report_page"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = _escape_markdown
    return environment.get_template(template).render(page=page, labels=LABELS)


def _escape_markdown(text: str) -> str:
    """The text as one line that Markdown shows as it is, in a table too."""
    return re.sub(r"([\\`*\[\]<>|#!])", r"\\\1", " ".join(text.split()))
