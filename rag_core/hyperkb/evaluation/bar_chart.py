"""Bar charts as SVG, without a library: readable on a light and on a dark page."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias
from xml.sax.saxutils import escape

Groups: TypeAlias = Mapping[str, Mapping[str, float]]
"""Values by group, then by the name of their bar."""

BAR_WIDTH, VALUE_WIDTH, LETTER_WIDTH, LINE_HEIGHT, INDENT = 400, 80, 8, 20, 24
STYLE = """\
text { font: 13px sans-serif; fill: #222 } .group { font-weight: bold } rect { fill: #3b6ea5 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } rect { fill: #7fb2e5 } }"""


def draw_bars(title: str, groups: Groups) -> str:
    """Draws one horizontal bar per value. Each group has its own scale, from 0 to its largest value."""
    names = [name for values in groups.values() for name in values]
    bars_x = INDENT + LETTER_WIDTH * max(map(len, names))
    width, height = bars_x + BAR_WIDTH + VALUE_WIDTH, (1 + len(groups) + len(names)) * LINE_HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            *_draw_lines(groups, bars_x),
            "</svg>\n",
        ]
    )


def _draw_lines(groups: Groups, bars_x: int) -> Iterator[str]:
    y = LINE_HEIGHT
    for group, values in groups.items():
        largest = max(values.values())
        yield f'<text class="group" x="8" y="{y}">{escape(group)}</text>'
        for name, value in values.items():
            y += LINE_HEIGHT
            length = max(0.0, value / largest * BAR_WIDTH) if largest > 0 else 0.0
            yield f'<text x="{INDENT}" y="{y}">{escape(name)}</text>'
            yield f'<rect x="{bars_x}" y="{y - 12}" width="{length:.1f}" height="14"/>'
            yield f'<text x="{bars_x + length + 8:.1f}" y="{y}">{value:.4g}</text>'
        y += LINE_HEIGHT
