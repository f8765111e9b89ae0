"""Charts as inline SVG. Colours are classes of the page's style sheet; each chart has a title for screen readers."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log

from markupsafe import Markup

from rag_core.evaluation.significance import Estimate

CURVE_WIDTH, CURVE_HEIGHT, CURVE_LEFT, CURVE_TOP = 640, 240, 44, 12
RANK_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)
PLOT_WIDTH = 160
SPARK_WIDTH, SPARK_HEIGHT = 480, 72
STYLES = 6
"""The number of styles of lines in the style sheet, s0 to s5."""


def draw_interval(estimate: Estimate, start: float, end: float, title: str) -> Markup:
    """A point with its 95 % interval on an axis from `start` to `end`, with a mark at 0 if that is between them."""
    low, mean, high, zero = (
        PLOT_WIDTH * (min(max(value, start), end) - start) / (end - start)
        for value in (estimate.low, estimate.mean, estimate.high, 0.0)
    )
    mark = Markup('<line class="axis" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="16"/>').format(zero) if start < 0 else ""
    return Markup(
        '<svg class="interval" viewBox="-6 0 172 16" width="172" height="16" role="img" aria-label="{title}">'
        '<title>{title}</title><line class="track" x1="0" x2="160" y1="8" y2="8"/>{mark}'
        '<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="8" y2="8"/>'
        '<circle class="point" cx="{mean:.1f}" cy="8" r="4.5"/></svg>'
    ).format(title=title, mark=mark, low=low, mean=mean, high=high)


def draw_bar(parts: Sequence[tuple[str, int, str]], title: str) -> Markup:
    """One bar of parts, each with its name, its count and its class, in proportion to the counts."""
    total, position, bars = sum(count for _, count, _ in parts), 0.0, Markup("")
    for name, count, style in parts:
        width = 1000 * count / total
        bars += Markup(
            '<rect class="{}" x="{:.1f}" y="0" width="{:.1f}" height="30"><title>{}: {}</title></rect>'
        ).format(style, position, max(width - 2, 1), name, count)
        position += width
    return Markup(
        '<svg class="bar" viewBox="0 0 1000 30" preserveAspectRatio="none" role="img" aria-label="{0}">'
        "<title>{0}</title>{1}</svg>"
    ).format(title, bars)


def draw_curves(curves: Mapping[str, Sequence[float]], title: str) -> Markup:
    """Shares at the ranks 1, 2, 3, ... as steps over a logarithmic axis, one curve for each name."""
    ranks = max(map(len, curves.values()))
    grid = Markup("").join(
        [
            *(_draw_share_line(share) for share in (0, 0.25, 0.5, 0.75, 1)),
            *(_draw_rank_tick(rank, ranks) for rank in RANK_TICKS if rank <= ranks),
        ]
    )
    lines = Markup("").join(
        Markup('<path class="curve s{}" d="{}"><title>{}</title></path>').format(
            index % STYLES, _step_path(shares), name
        )
        for index, (name, shares) in enumerate(curves.items())
    )
    names = Markup("").join(
        Markup(
            '<li><svg viewBox="0 0 28 10" aria-hidden="true"><path class="curve s{}" d="M0 5H28"/></svg>{}</li>'
        ).format(index % STYLES, name)
        for index, name in enumerate(curves)
    )
    return Markup(
        '<div class="scroll"><svg class="curves" viewBox="0 0 700 286" role="img" aria-label="{0}"><title>{0}</title>'
        '{1}{2}<text class="tick" x="364" y="282" text-anchor="middle">rank (logarithmic)</text></svg></div>'
        '<ul class="legend">{3}</ul>'
    ).format(title, grid, lines, names)


def draw_history(values: Sequence[float], title: str) -> Markup:
    """A line of values, oldest first, with a point at the last one; the axis is that of the values."""
    low, high = min(values), max(values)
    points = [
        (
            10 + (SPARK_WIDTH - 20) * index / max(1, len(values) - 1),
            SPARK_HEIGHT - 12 - (SPARK_HEIGHT - 24) * ((value - low) / (high - low) if high > low else 0.5),
        )
        for index, value in enumerate(values)
    ]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = Markup("").join(Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="3"/>').format(*at) for at in points)
    return Markup(
        '<svg class="history" viewBox="0 0 480 72" role="img" aria-label="{0}"><title>{0}</title>'
        '<path class="curve s0" d="{1}"/>{2}<circle class="point" cx="{3:.1f}" cy="{4:.1f}" r="5"/></svg>'
    ).format(title, path, dots, *points[-1])


def _draw_share_line(share: float) -> Markup:
    y = _share_y(share)
    return Markup(
        '<line class="track" x1="44" x2="684" y1="{0:.1f}" y2="{0:.1f}"/>'
        '<text class="tick" x="38" y="{1:.1f}" text-anchor="end">{2:.0%}</text>'
    ).format(y, y + 4, share)


def _draw_rank_tick(rank: int, ranks: int) -> Markup:
    return Markup('<text class="tick" x="{:.1f}" y="268" text-anchor="middle">{}</text>').format(
        _rank_x(rank, ranks), rank
    )


def _step_path(shares: Sequence[float]) -> str:
    steps = [f"M{_rank_x(1, len(shares)):.1f} {_share_y(shares[0]):.1f}"]
    for rank, (before, share) in enumerate(pairwise(shares), start=2):
        if share != before or rank == len(shares):
            steps.append(f"H{_rank_x(rank, len(shares)):.1f}V{_share_y(share):.1f}")
    return "".join(steps)


def _rank_x(rank: int, ranks: int) -> float:
    return CURVE_LEFT + CURVE_WIDTH * log(rank) / log(max(2, ranks))


def _share_y(share: float) -> float:
    return CURVE_TOP + CURVE_HEIGHT * (1 - share)
