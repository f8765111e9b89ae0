"""The distance of each question from the subject of its conversation so far."""

from collections.abc import Sequence

from rag_core.notebook.charts.chart import BLUE, INK, PALE, VERMILION, Chart, new_axes
from rag_core.types import Reply

ROW_INCHES, MARGIN_INCHES = 0.42, 1.2


def draw_topic_drift(replies: Sequence[Reply], title: str) -> Chart:
    """Draws one row per turn, the first at the top. A change of the subject has another colour and its name.

    A turn without an earlier message has no drift.
    """
    measured = [(turn, reply) for turn, reply in enumerate(replies) if _drift(reply) is not None]
    with new_axes(8.5, MARGIN_INCHES + ROW_INCHES * len(replies), title) as (figure, axes):
        for turn, reply in measured:
            drift, is_shift = _drift(reply) or 0.0, _is_shift(reply)
            colour = VERMILION if is_shift else BLUE
            axes.hlines(turn, 0, drift, color=PALE, linewidth=2)
            axes.plot(drift, turn, marker="D" if is_shift else "o", color=colour, markersize=8)
            label = f"{drift:.2f}{'  new subject' if is_shift else ''}"
            axes.annotate(label, (drift, turn), (9, 0), textcoords="offset points", va="center", color=INK)
        for turn in sorted(set(range(len(replies))) - {turn for turn, _ in measured}):
            axes.annotate("nothing to compare with", (0, turn), (9, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(replies)), [reply.query.text for reply in replies])
        axes.set(xlim=(0, 1.3), ylim=(len(replies) - 0.5, -0.5), xticks=[0, 0.25, 0.5, 0.75, 1])
        axes.spines["bottom"].set_bounds(0, 1)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("distance from the subject so far")
    described = ", ".join(
        f"{reply.query.text!r} {_drift(reply):.2f}{' (new subject)' if _is_shift(reply) else ''}"
        for _, reply in measured
    )
    return Chart(figure, f"{title}: {described}")


def _drift(reply: Reply) -> float | None:
    return reply.understanding.drift if reply.understanding else None


def _is_shift(reply: Reply) -> bool:
    return reply.understanding is not None and reply.understanding.is_shift
