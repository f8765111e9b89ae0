"""What a Word document's styles say of a paragraph: heading, list, or neither."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rag_core.parsing.office.numbering import VALUE, WORD
from rag_core.parsing.safe_xml import Element

_HEADING = re.compile(r"heading ?([1-9])")
_DEEPEST_CHAIN = 16
_BODY_TEXT = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`level` is the heading's, from 1, and 0 for body text; `number` and `depth` name the list and the level in it."""

    style: str = ""
    level: int = 0
    number: str = ""
    depth: int = 0


class Styles:
    """`levels` says at which level of its list a style stands."""

    def __init__(self, styles: Mapping[str, Element], levels: Mapping[str, int]) -> None:
        self._styles, self._levels = styles, levels
        self._known: dict[str, Layout] = {}

    def layout(self, paragraph: Element) -> Layout:
        own = paragraph.find(f"{WORD}pPr")
        name = _value(own, "pStyle")
        if name not in self._known:
            self._known[name] = self._styled(name)
        known = self._known[name]
        if own is None or (own.find(f"{WORD}numPr") is None and own.find(f"{WORD}outlineLvl") is None):
            return known
        return self._direct(known, own)

    def _styled(self, name: str) -> Layout:
        chain = [(each, self._styles[each]) for each in self._chain(name)]
        level = next((level for id, style in chain if (level := _level(id, style)) >= 0), 0)
        numbered = next(((id, style) for id, style in chain if _number(style.find(f"{WORD}pPr"))), None)
        shown = _shown(name, chain[0][1]) if chain else name.lower()
        if not chain:
            level = max(_named(shown), 0)
        if numbered is None:
            return Layout(style=shown, level=level)
        id, style = numbered
        properties = style.find(f"{WORD}pPr")
        depth = _depth(properties, self._levels.get(name, self._levels.get(id, 0)))
        return Layout(style=shown, level=level, number=_listed(_number(properties)), depth=depth)

    def _direct(self, known: Layout, own: Element) -> Layout:
        outline = _value(own, "outlineLvl")
        level = _outlined(outline) if outline.isdecimal() else known.level
        number = _listed(_number(own) or known.number)
        return Layout(style=known.style, level=level, number=number, depth=_depth(own, known.depth))

    def _chain(self, name: str) -> Iterator[str]:
        """The style and those that it is based on."""
        for _ in range(_DEEPEST_CHAIN):
            if name not in self._styles:
                return
            yield name
            name = _value(self._styles[name], "basedOn")


def _level(id: str, style: Element) -> int:
    """-1 where this style leaves it to the one that it is based on."""
    outline = _value(style.find(f"{WORD}pPr"), "outlineLvl")
    return _outlined(outline) if outline.isdecimal() else _named(_shown(id, style))


def _shown(id: str, style: Element) -> str:
    return (_value(style, "name") or id).lower()


def _named(name: str) -> int:
    built_in = _HEADING.fullmatch(name)
    return int(built_in[1]) if built_in else 1 if name == "title" else -1


def _outlined(level: str) -> int:
    return int(level) + 1 if int(level) < _BODY_TEXT else 0


def _number(properties: Element | None) -> str:
    return "" if properties is None else _value(properties.find(f"{WORD}numPr"), "numId")


def _listed(number: str) -> str:
    return "" if number == "0" else number


def _depth(properties: Element | None, otherwise: int) -> int:
    depth = "" if properties is None else _value(properties.find(f"{WORD}numPr"), "ilvl")
    return min(int(depth), 8) if depth.isdecimal() else otherwise


def _value(parent: Element | None, name: str) -> str:
    found = None if parent is None else parent.find(f"{WORD}{name}")
    return "" if found is None else found.get(VALUE, "")
