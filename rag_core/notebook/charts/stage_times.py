"""The time of each stage, as bars."""

from collections.abc import Mapping

from rag_core.notebook.charts.chart import BLUE, Chart, new_axes

BAR_INCHES, MARGIN_INCHES = 0.36, 1.1
LABEL_ROOM = 1.15
"""The axis as a multiple of the longest bar, so that its label has room."""


def draw_stage_times(seconds: Mapping[str, float], title: str) -> Chart:
    """Draws one bar per stage, the first at the top. The labels of times below a second are in milliseconds."""
    labels = [f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms" for value in seconds.values()]
    with new_axes(7, MARGIN_INCHES + BAR_INCHES * len(seconds), title) as (figure, axes):
        axes.bar_label(axes.barh(list(seconds), list(seconds.values()), color=BLUE, height=0.7), labels, padding=4)
        axes.set_xlim(0, LABEL_ROOM * max(seconds.values()))
        axes.set_xlabel("seconds")
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
    return Chart(figure, f"{title}: {', '.join(map(' '.join, zip(seconds, labels, strict=True)))}")
