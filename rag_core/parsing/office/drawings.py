"""DrawingML, which slides, documents and sheets share: text, tables, charts, diagrams."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rag_core.parsing.blocks import Block, listed, paragraph
from rag_core.parsing.office.equations import MATH, equation
from rag_core.parsing.office.numbering import written
from rag_core.parsing.office.numbers import formatted
from rag_core.parsing.office.packages import COMPATIBILITY, RELATIONSHIP, Part, chosen
from rag_core.parsing.safe_xml import Element, elements, spoken
from rag_core.parsing.tables import Cell, Covered, table

DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"

_MARKERS = (f"{DRAWING}buChar", f"{DRAWING}buAutoNum", f"{DRAWING}buBlip")
_SCHEME = re.compile(r"(arabic|alphaLc|alphaUc|romanLc|romanUc)(Period|ParenR|ParenBoth|Plain)")
_DIGITS = {
    "arabic": "decimal",
    "alphaLc": "lowerLetter",
    "alphaUc": "upperLetter",
    "romanLc": "lowerRoman",
    "romanUc": "upperRoman",
}
_AROUND = {"Period": "{}.", "ParenR": "{})", "ParenBoth": "({})", "Plain": "{}"}
_SLIDE_NUMBER = "slidenum"
_AUTOMATIC = re.compile(r"(?:Description automatically generated|AI-generated content may be incorrect)[^\n]*", re.I)
_FILE_NAME = re.compile(r"\S+\.(?:png|jpe?g|gif|bmp|tiff?|svg|[ew]mf|webp)", re.I)


def text_blocks(body: Element, is_list: bool = False) -> Iterator[Block]:
    """The paragraphs of a text body; those of a list are bulleted unless they say otherwise."""
    counts: dict[int, int] = {}
    for each in body.iterchildren(f"{DRAWING}p"):
        properties = each.find(f"{DRAWING}pPr")
        text = "".join(_pieces(each))
        if not _is_bulleted(properties, is_list):
            counts.clear()
            yield paragraph(text)
        elif text.strip():
            yield listed(text, _marker(properties, counts), _level(properties))


def alternative(said: str) -> str:
    """An alternative text, if somebody wrote it: no file name, no word on how it came about."""
    text = _AUTOMATIC.sub("", said).strip()
    return "" if _FILE_NAME.fullmatch(text) else text


def drawn_table(element: Element) -> Block:
    return table([[_cell(cell) for cell in row.iterchildren(f"{DRAWING}tc")] for row in element.iter(f"{DRAWING}tr")])


def graphic_blocks(element: Element, part: Part) -> Iterator[Block]:
    """What it is itself: a table, a chart or a diagram, or nothing of these."""
    if element.tag == f"{DRAWING}tbl":
        yield drawn_table(element)
    elif element.tag == f"{CHART}chart":
        yield from _chart(part.named(element.get(f"{RELATIONSHIP}id", "")))
    elif element.tag == f"{DIAGRAM}relIds":
        yield from _diagram(part.named(element.get(f"{RELATIONSHIP}dm", "")))


def _pieces(element: Element) -> Iterator[str]:
    for child in elements(element):
        match str(child.tag).removeprefix(DRAWING):
            case "r":
                yield child.findtext(f"{DRAWING}t") or ""
            case "fld" if child.get("type") != _SLIDE_NUMBER:
                yield child.findtext(f"{DRAWING}t") or ""
            case "br":
                yield "\n"
            case tag if tag.startswith(MATH):
                yield f" {equation(child)} "
            case tag if tag == f"{COMPATIBILITY}AlternateContent":
                yield " ".join(equation(each) for first in chosen(child) for each in first.iter(f"{MATH}oMath"))


def _is_bulleted(properties: Element | None, is_list: bool) -> bool:
    if properties is None:
        return is_list
    if properties.find(f"{DRAWING}buNone") is not None:
        return False
    return is_list or any(properties.find(marker) is not None for marker in _MARKERS)


def _marker(properties: Element | None, counts: dict[int, int]) -> str:
    """`-`, `3.` or `b)`. `counts` is how far each level has come; a bullet on a level ends its count."""
    level = _level(properties)
    for deeper in [each for each in counts if each > level]:
        del counts[deeper]
    numbered = None if properties is None else properties.find(f"{DRAWING}buAutoNum")
    scheme = None if numbered is None else _SCHEME.fullmatch(numbered.get("type", ""))
    if numbered is None or scheme is None:
        counts.pop(level, None)
        return "-"
    start = numbered.get("startAt", "1")
    first = int(start) if start.isdecimal() and len(start) < 6 else 1
    counts[level] = counts.get(level, first - 1) + 1
    return _AROUND[scheme[2]].format(written(counts[level], _DIGITS[scheme[1]]))


def _level(properties: Element | None) -> int:
    level = "0" if properties is None else properties.get("lvl", "0")
    return min(int(level), 8) if level.isdecimal() else 0


def _cell(cell: Element) -> Cell:
    if cell.get("hMerge") in ("1", "true"):
        return Covered.LEFT
    if cell.get("vMerge") in ("1", "true"):
        return Covered.ABOVE
    body = cell.find(f"{DRAWING}txBody")
    return "" if body is None else " ".join(block.text for block in text_blocks(body))


def _chart(part: Part | None) -> Iterator[Block]:
    """Its title, and its series as the columns of a table; points with other x-values have a table of their own."""
    if part is None:
        return
    title = part.root.find(f"{CHART}chart/{CHART}title")
    yield paragraph("" if title is None else " ".join(spoken(each) for each in title.iter(f"{DRAWING}p")))
    series = list(part.root.iter(f"{CHART}ser"))
    shared = next((names for each in series if (names := _points(each, "cat"))), {})
    for names, alike in groupby(series, key=lambda each: _points(each, "xVal") or shared):
        yield _plotted(names, list(alike))


def _plotted(names: Mapping[int, str], series: Sequence[Element]) -> Block:
    values = [_points(each, "val") or _points(each, "yVal") for each in series]
    header = [
        "",
        *(" ".join(_points(each, "tx").values()) or each.findtext(f"{CHART}tx/{CHART}v", "") for each in series),
    ]
    places = sorted(names.keys() | {place for points in values for place in points})
    return table([header, *([names.get(place, ""), *(each.get(place, "") for each in values)] for place in places)])


def _points(series: Element, role: str) -> dict[int, str]:
    found = series.find(f"{CHART}{role}")
    if found is None:
        return {}
    code = next((each.text or "" for each in found.iter(f"{CHART}formatCode")), "")
    levels = list(found.iter(f"{CHART}lvl")) or [found]
    return _joined([_level_points(each, code) for each in reversed(levels)])


def _level_points(level: Element, code: str) -> dict[int, str]:
    old = level.getroottree().getroot().find(f"{CHART}date1904")
    first_year = 1900 if old is None or old.get("val") in ("0", "false") else 1904
    return {
        place: formatted(point.findtext(f"{CHART}v") or "", point.get("formatCode", code), first_year)
        for point in level.iter(f"{CHART}pt")
        if (place := _place(point)) >= 0
    }


def _joined(levels: Sequence[Mapping[int, str]]) -> dict[int, str]:
    """The outermost first; an outer level tells only where it changes."""
    *outer, inner = levels
    said = [""] * len(outer)
    joined: dict[int, str] = {}
    for place in sorted({place for level in levels for place in level}):
        said = [level.get(place, before) for level, before in zip(outer, said, strict=True)]
        joined[place] = " ".join(filter(None, (*said, inner.get(place, ""))))
    return joined


def _place(point: Element) -> int:
    place = point.get("idx", "")
    return int(place) if place.isdecimal() else -1


def _diagram(part: Part | None) -> Iterator[Block]:
    if part is not None:
        for point in part.root.iter(f"{DIAGRAM}pt"):
            yield listed(" ".join(spoken(each) for each in point.iter(f"{DRAWING}p")))
