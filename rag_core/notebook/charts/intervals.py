"""Means with their confidence intervals."""

from collections.abc import Mapping

from rag_core.evaluation.significance import Estimate
from rag_core.notebook.charts.chart import BLUE, GREY, Chart, new_axes

ROW_INCHES, MARGIN_INCHES = 0.5, 1.2


def draw_intervals(estimates: Mapping[str, Estimate], title: str, measure: str) -> Chart:
    """Draws one mean with its 95 % interval per row, the first at the top. The axis does not begin at 0."""
    means = [estimate.mean for estimate in estimates.values()]
    errors = [
        [estimate.mean - estimate.low for estimate in estimates.values()],
        [estimate.high - estimate.mean for estimate in estimates.values()],
    ]
    with new_axes(7, MARGIN_INCHES + ROW_INCHES * len(estimates), title) as (figure, axes):
        rows = range(len(estimates))
        axes.errorbar(means, rows, xerr=errors, fmt="o", color=BLUE, ecolor=GREY, elinewidth=2, markersize=7)
        for row, mean in zip(rows, means, strict=True):
            axes.annotate(f"{mean:.3f}", (mean, row), (0, 8), textcoords="offset points", ha="center")
        axes.set_yticks(rows, list(estimates))
        axes.set_ylim(len(estimates) - 0.4, -0.7)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"{measure}, mean and 95 % interval")
    described = ", ".join(
        f"{name} {estimate.mean:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
        for name, estimate in estimates.items()
    )
    return Chart(figure, f"{title}: {described}")
