"""The differences of two pipelines, question by question."""

from collections.abc import Mapping

from rag_core.evaluation.significance import TIE
from rag_core.notebook.charts.chart import BLUE, GREY, VERMILION, Chart, new_axes

LABEL_ROOM = 0.12


def draw_paired_differences(differences: Mapping[str, float], title: str, measure: str) -> Chart:
    """Draws one bar per question that differs, the largest gain first. `differences` are by the text of the question.

    Equal questions are only counted.
    """
    changed = {text: value for text, value in differences.items() if abs(value) >= TIE}
    ordered = sorted(changed.items(), key=lambda item: -item[1])
    values = [value for _, value in ordered]
    better, worse = sum(value > 0 for value in values), sum(value < 0 for value in values)
    summary = f"{better} better, {worse} worse, {len(differences) - len(changed)} equal"
    with new_axes(8.5, 1.3 + 0.3 * max(1, len(values)), title) as (figure, axes):
        colours = [BLUE if value > 0 else VERMILION for value in values]
        axes.bar_label(axes.barh(range(len(values)), values, color=colours, height=0.7), fmt="%+.2f", padding=3)
        axes.set_yticks(range(len(values)), [text for text, _ in ordered])
        axes.axvline(0, color=GREY, linewidth=1)
        axes.margins(x=LABEL_ROOM)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.set_xlabel(f"difference in {measure}; {summary}")
    return Chart(figure, f"{title}: {summary}")
