"""The movement of hits between the rankings of a search: a slope chart (Tufte 1983)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rag_core.notebook.charts.chart import GREY, INK, PALE, VERMILION, Chart, new_axes
from rag_core.retrieval.explanation import DISPLAY_NAMES, Ranks, find_rank, ranks_by_stage, score_names
from rag_core.types import Hit, StageReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_INCHES, MARGIN_INCHES = 0.34, 1.4
MAX_LABEL_CHARS = 52
UNRANKED = "-"


def draw_rank_movement(
    hits: Sequence[Hit], stages: Sequence[StageReport], title: str, depth: int = 10, highlighted: Sequence[UUID] = ()
) -> Chart:
    """Draws one line per hit, from its rank in each leg to its final one. `stages` are those of `kb.explain`.

    Ranks below `depth`, and hits that a leg did not rank, are drawn in the lowest row. `highlighted` holds the ids of
    the chunks whose lines are coloured.
    """
    names, ranks = score_names(hits), ranks_by_stage(stages)
    with new_axes(8.5, MARGIN_INCHES + ROW_INCHES * depth, title) as (figure, axes):
        for final_rank, hit in enumerate(hits[:depth], start=1):
            hit_ranks = [*(find_rank(hit, name, ranks) for name in names[:-1]), final_rank]
            heights = [min(rank or depth + 1, depth + 1) for rank in hit_ranks]
            _draw_line(axes, heights, f"{final_rank}  {_label(hit)}", hit.chunk.id in highlighted)
        axes.set_ylim(depth + 1.5, 0.5)
        axes.set_yticks([*range(1, depth + 1), depth + 1], [*map(str, range(1, depth + 1)), f"> {depth}"])
        axes.set_xticks(range(len(names)), [DISPLAY_NAMES.get(name, name) for name in names])
        axes.axhline(depth + 0.5, color=PALE, linewidth=1)
        axes.set_ylabel("rank")
    return Chart(figure, _describe(hits[:depth], names, ranks, title))


def _draw_line(axes: "Axes", heights: Sequence[int], label: str, is_highlighted: bool) -> None:
    colour, text_colour, weight = (VERMILION, VERMILION, "bold") if is_highlighted else (GREY, INK, "normal")
    axes.plot(heights, color=colour, linewidth=2.5 if is_highlighted else 1, marker="o", markersize=5, zorder=3)
    axes.annotate(
        label,
        (len(heights) - 1, heights[-1]),
        (10, 0),
        textcoords="offset points",
        va="center",
        color=text_colour,
        fontweight=weight,
    )


def _label(hit: Hit) -> str:
    """The document's title, and the first line of the chunk without the signs of a heading."""
    title, first_line = hit.origin.title, hit.chunk.text.lstrip("# ").partition("\n")[0].strip()
    text = title if first_line.casefold() == title.casefold() else f"{title}: {first_line}"
    return text if len(text) <= MAX_LABEL_CHARS else f"{text[: MAX_LABEL_CHARS - 1].rstrip()}…"


def _describe(hits: Sequence[Hit], names: Sequence[str], ranks: Ranks, title: str) -> str:
    lines = [title]
    for hit in hits:
        steps = [f"{DISPLAY_NAMES.get(name, name)} {find_rank(hit, name, ranks) or UNRANKED}" for name in names]
        lines.append(f"{_label(hit)}: {', '.join(steps)}")
    return "\n".join(lines)
