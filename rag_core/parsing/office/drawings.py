"""DrawingML: the text, tables, charts and diagrams of slides, documents and sheets."""

import re
from collections.abc import Iterator

from rag_core.parsing.blocks import Block, list_item, paragraph
from rag_core.parsing.office.charts import CHART, chart_blocks
from rag_core.parsing.office.equations import MATH, equation_text
from rag_core.parsing.office.numbering import format_count
from rag_core.parsing.office.packages import COMPATIBILITY, RELATIONSHIP, Part, first_choice
from rag_core.parsing.safe_xml import Element, child_elements, element_text
from rag_core.parsing.tables import Cell, CoveredBy, table

DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"

_CHART_ID, _DIAGRAM_ID = f"{RELATIONSHIP}id", f"{RELATIONSHIP}dm"
_BULLETS = (f"{DRAWING}buChar", f"{DRAWING}buAutoNum", f"{DRAWING}buBlip")
_NUMBERING_SCHEME = re.compile(r"(arabic|alphaLc|alphaUc|romanLc|romanUc)(Period|ParenR|ParenBoth|Plain)")
_COUNT_FORMATS = {
    "arabic": "decimal",
    "alphaLc": "lowerLetter",
    "alphaUc": "upperLetter",
    "romanLc": "lowerRoman",
    "romanUc": "upperRoman",
}
_MARKER_PATTERNS = {"Period": "{}.", "ParenR": "{})", "ParenBoth": "({})", "Plain": "{}"}
_SLIDE_NUMBER = "slidenum"
_GENERATED = re.compile(
    r"(?:Description automatically generated|AI-generated content may be incorrect)[^\n]*", re.IGNORECASE
)
_FILE_NAME = re.compile(r"\S+\.(?:png|jpe?g|gif|bmp|tiff?|svg|[ew]mf|webp)", re.IGNORECASE)


def text_blocks(body: Element, is_list: bool = False) -> Iterator[Block]:
    """Yields the paragraphs of a text body. `is_list`: they have bullets unless their properties exclude them."""
    markers = _ItemMarkers()
    for element in body.iterchildren(f"{DRAWING}p"):
        properties = element.find(f"{DRAWING}pPr")
        text = "".join(_text_pieces(element))
        has_bullet = properties is not None and any(properties.find(bullet) is not None for bullet in _BULLETS)
        is_excluded = properties is not None and properties.find(f"{DRAWING}buNone") is not None
        if is_excluded or not (is_list or has_bullet):
            markers = _ItemMarkers()
            yield paragraph(text)
        elif text.strip():
            number = "0" if properties is None else properties.get("lvl", "0")
            level = min(int(number), 8) if number.isdecimal() else 0
            yield list_item(text, markers.next_marker(properties, level), level)


def alternative_text(description: str) -> str:
    """The alternative text that an author wrote: without notes of generators, and empty for a picture's file name."""
    text = _GENERATED.sub("", description).strip()
    return "" if _FILE_NAME.fullmatch(text) else text


def graphic_blocks(element: Element, part: Part) -> Iterator[Block]:
    """Yields the blocks of a table, chart or diagram; nothing for any other element, and nothing for its children."""
    if element.tag == f"{DRAWING}tbl":
        yield table(map(_table_row, element.iter(f"{DRAWING}tr")))
    elif element.tag == f"{CHART}chart" and (chart := part.find_part(element.get(_CHART_ID, ""))):
        yield from chart_blocks(chart.root)
    elif element.tag == f"{DIAGRAM}relIds" and (diagram := part.find_part(element.get(_DIAGRAM_ID, ""))):
        for point in diagram.root.iter(f"{DIAGRAM}pt"):
            yield list_item(" ".join(map(element_text, point.iter(f"{DRAWING}p"))))


def _text_pieces(element: Element) -> Iterator[str]:
    """Yields the texts of a paragraph's runs, fields, breaks and equations."""
    for child in child_elements(element):
        match str(child.tag).removeprefix(DRAWING):
            case "r":
                yield child.findtext(f"{DRAWING}t") or ""
            case "fld" if child.get("type") != _SLIDE_NUMBER:
                yield child.findtext(f"{DRAWING}t") or ""
            case "br":
                yield "\n"
            case tag if tag.startswith(MATH):
                yield f" {equation_text(child)} "
            case tag if tag == f"{COMPATIBILITY}AlternateContent":
                yield " ".join(
                    equation_text(math) for choice in first_choice(child) for math in choice.iter(f"{MATH}oMath")
                )


class _ItemMarkers:
    """Counts the items of a text body by level. A bullet ends the count of its level."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def next_marker(self, properties: Element | None, level: int) -> str:
        """Counts one more item: `-`, `3.` or `b)`."""
        for deeper in [counted for counted in self._counts if counted > level]:
            del self._counts[deeper]
        numbering = None if properties is None else properties.find(f"{DRAWING}buAutoNum")
        scheme = None if numbering is None else _NUMBERING_SCHEME.fullmatch(numbering.get("type", ""))
        if numbering is None or scheme is None:
            self._counts.pop(level, None)
            return "-"
        start = numbering.get("startAt", "1")
        first = int(start) if start.isdecimal() and len(start) < 6 else 1
        self._counts[level] = self._counts.get(level, first - 1) + 1
        return _MARKER_PATTERNS[scheme[2]].format(format_count(self._counts[level], _COUNT_FORMATS[scheme[1]]))


def _table_row(row: Element) -> list[Cell]:
    cells: list[Cell] = []
    for cell in row.iterchildren(f"{DRAWING}tc"):
        if cell.get("hMerge") in ("1", "true"):
            cells.append(CoveredBy.LEFT)
        elif cell.get("vMerge") in ("1", "true"):
            cells.append(CoveredBy.ABOVE)
        else:
            body = cell.find(f"{DRAWING}txBody")
            cells.append("" if body is None else " ".join(block.text for block in text_blocks(body)))
    return cells
