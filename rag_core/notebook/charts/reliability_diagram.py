"""The reliability diagram: how often answers of a confidence are right."""

from collections.abc import Sequence

from rag_core.evaluation.reliability import ReliabilityBin
from rag_core.notebook.charts.chart import BLUE, GREY, Chart, new_axes


def draw_reliability(bins: Sequence[ReliabilityBin], title: str) -> Chart:
    """Draws the share of right answers over the mean confidence of each bin, with 95 % intervals.

    Points on the diagonal are calibrated. Above it the answers are better than their confidence, below it worse.
    """
    confidences = [group.confidence for group in bins]
    shares = [group.right.mean for group in bins]
    errors = [
        [group.right.mean - group.right.low for group in bins],
        [group.right.high - group.right.mean for group in bins],
    ]
    with new_axes(5.6, 5.2, title) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
        axes.text(0.1, 0.02, "overconfident", color=GREY)
        axes.text(0.02, 0.97, "underconfident", color=GREY, va="top")
        axes.errorbar(confidences, shares, yerr=errors, fmt="o-", color=BLUE, ecolor=GREY, markersize=7, capsize=3)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal", xlabel="confidence of the answers")
        axes.set_ylabel("share of right answers")
    described = ", ".join(
        f"{group.right.mean:.2f} right at confidence {group.confidence:.2f} ({group.count} answers)" for group in bins
    )
    return Chart(figure, f"{title}: {described}")
