"""The bar that shows where answers are lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rag_core.evaluation.finished_run import FinishedRun
from rag_core.evaluation.report_page.charts import draw_bar
from rag_core.evaluation.report_page.section import format_share

LABELS: Mapping[str, str] = {
    "not_indexed": "the relevant document is not stored",
    "span_lost": "the answer is in no chunk",
    "rewrite_error": "the rewritten question does not find it",
    "pool_miss": "no leg of the search finds it",
    "fusion_loss": "the fusion of the legs ranks it too low",
    "rerank_loss": "a step after the fusion ranks it too low",
    "budget_cut": "it does not fit into the prompt",
    "unused_context": "the answer is wrong, but no earlier step lost it",
    "unsupported_claim": "the judge finds the answer unsupported",
    "wrong_citation": "no citation is of a relevant document",
    "over_abstain": "an answerable question is refused",
    "under_abstain": "an unanswerable question is answered",
    "judge_error": "only the judge failed, or contradicts the measures",
}
"""The labels of the failure waterfall in its order, with their meanings."""
UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPart:
    name: str
    meaning: str
    count: int
    share: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    heading: str
    title: str
    chart: Markup
    parts: Sequence[LossPart]


def build_losses(run: FinishedRun) -> Losses | None:
    """The failed questions by the label of the failure waterfall; without one, the relevant documents that are lost."""
    waterfall = run.report.get("waterfall")
    if waterfall and waterfall["questions"]:
        title = f"{waterfall['failed']} of {waterfall['questions']} measured questions fail"
        good = waterfall["questions"] - waterfall["failed"]
        counts = {"good": good, **waterfall["labels"], UNMEASURED: _count_errors(run)}
        styles = {name: f"c{index}" for index, name in enumerate(LABELS)}
        meanings = {"good": "the answer is good", **LABELS, UNMEASURED: "the search or the answer ended with an error"}
        parts = _build_parts(counts, meanings, styles)
        return Losses(heading="Where answers are lost", title=title, chart=_draw_parts(parts, title), parts=parts)
    lost: Mapping[str, int] = run.report.get("lost", {})
    places = [name for name in lost if name != "found"]
    if not sum(lost.values()):
        return None
    title = f"{sum(lost[name] for name in places)} of {sum(lost.values())} relevant documents are lost"
    counts = {"good": lost.get("found", 0), **{name: lost[name] for name in places if lost[name]}}
    meanings = {"good": "among the first 10 hits", **{name: f"lost at: {name}" for name in places}}
    styles = {name: f"c{2 * index % len(LABELS)}" for index, name in enumerate(places)}
    parts = _build_parts(counts, meanings, styles)
    return Losses(
        heading="Where relevant documents are lost", title=title, chart=_draw_parts(parts, title), parts=parts
    )


def _count_errors(run: FinishedRun) -> int:
    """The questions without a label. An answer can be labelled even if the separate search of its question failed."""
    errors = [question.answer.error for question in run.answered if question.answer]
    return sum(map(bool, errors or [question.error for question in run.questions]))


def _build_parts(counts: Mapping[str, int], meanings: Mapping[str, str], styles: Mapping[str, str]) -> list[LossPart]:
    total = sum(counts.values())
    return [
        LossPart(
            name=name,
            meaning=meanings.get(name, ""),
            count=count,
            share=format_share(count / total),
            style=styles.get(name, name),
        )
        for name, count in counts.items()
        if count
    ]


def _draw_parts(parts: Sequence[LossPart], title: str) -> Markup:
    return draw_bar([(part.name, part.count, part.style) for part in parts], title)
