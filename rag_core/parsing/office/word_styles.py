"""What the styles of a Word document make of a paragraph: a heading, a list item, or neither."""

from collections.abc import Mapping
from dataclasses import dataclass

from rag_core.parsing.office.heading_levels import outline_level, style_level
from rag_core.parsing.office.numbering import WORD, child_value
from rag_core.parsing.safe_xml import Element

_MAX_STYLE_CHAIN = 16
_UNDEFINED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`style` is the style's name in lower case. `heading_level` counts from 1, and is 0 for body text.

    `list_id` is empty if the paragraph is not a list item; `list_level` counts from 0.
    """

    style: str = ""
    heading_level: int = 0
    list_id: str = ""
    list_level: int = 0


class Styles:
    """The paragraph styles by id. `list_levels` holds the list level that a style is linked to."""

    def __init__(self, styles: Mapping[str, Element], list_levels: Mapping[str, int]) -> None:
        self._styles, self._list_levels = styles, list_levels
        self._layouts: dict[str, Layout] = {}

    def paragraph_layout(self, paragraph: Element) -> Layout:
        """The layout of the paragraph's style, changed by the paragraph's own properties."""
        properties = paragraph.find(f"{WORD}pPr")
        style = child_value(properties, "pStyle")
        if style not in self._layouts:
            self._layouts[style] = self._style_layout(style)
        layout = self._layouts[style]
        if properties is None:
            return layout
        numbering = properties.find(f"{WORD}numPr")
        return Layout(
            style=layout.style,
            heading_level=_heading_level(properties, layout.heading_level),
            list_id=_list_id(numbering, layout.list_id),
            list_level=_list_level(numbering, layout.list_level),
        )

    def _style_layout(self, id: str) -> Layout:
        """The layout of a style. It inherits what it does not define from the styles that it is based on."""
        chain: list[tuple[str, Element]] = []
        base = id
        while base in self._styles and len(chain) < _MAX_STYLE_CHAIN:
            chain.append((base, self._styles[base]))
            base = child_value(self._styles[base], "basedOn")
        if not chain:
            return Layout(style=id.lower(), heading_level=style_level(id.lower()))
        names = [(child_value(style, "name") or base).lower() for base, style in chain]
        levels = [
            _heading_level(style.find(f"{WORD}pPr"), style_level(name) or _UNDEFINED)
            for name, (_, style) in zip(names, chain, strict=True)
        ]
        heading_level = next((level for level in levels if level != _UNDEFINED), 0)
        for base, style in chain:
            properties = style.find(f"{WORD}pPr")
            numbering = None if properties is None else properties.find(f"{WORD}numPr")
            if child_value(numbering, "numId"):
                linked_level = self._list_levels.get(id, self._list_levels.get(base, 0))
                return Layout(
                    style=names[0],
                    heading_level=heading_level,
                    list_id=_list_id(numbering),
                    list_level=_list_level(numbering, linked_level),
                )
        return Layout(style=names[0], heading_level=heading_level)


def _heading_level(properties: Element | None, default: int) -> int:
    """The heading level that the properties of a paragraph or of a style define."""
    outline = child_value(properties, "outlineLvl")
    return outline_level(int(outline)) if outline.isdecimal() else default


def _list_id(numbering: Element | None, inherited: str = "") -> str:
    """The id of the list; 0 in the document means that the paragraph is not in a list."""
    id = child_value(numbering, "numId") or inherited
    return "" if id == "0" else id


def _list_level(numbering: Element | None, inherited: int) -> int:
    level = child_value(numbering, "ilvl")
    return min(int(level), 8) if level.isdecimal() else inherited
