"""The table of all measures, with their differences from the base."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from rag_core.evaluation.comparison import ALPHA, recommend
from rag_core.evaluation.finished_run import FinishedRun
from rag_core.evaluation.report_page.base_comparison import BaseComparison
from rag_core.evaluation.report_page.charts import draw_interval
from rag_core.evaluation.report_page.section import (
    NO_CHART,
    Section,
    Table,
    format_difference,
    format_difference_interval,
    format_interval,
    format_share,
)
from rag_core.evaluation.significance import Estimate

SHOWN_MEASURES = ("ndcg@10", "recall@10", "recall@100", "mrr", "map", "success@5")


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


def _estimate(values: Mapping[str, Any]) -> Estimate:
    return Estimate(values["mean"], values["low"], values["high"])
