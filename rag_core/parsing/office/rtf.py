"""Rich Text Format, read here: striprtf, the library at hand, knows no headings, notes, merged cells or properties."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import Block, clean, comment, heading, is_page_number, joined, listed, paragraph
from rag_core.parsing.office.rtf_events import FURNITURE, Event, events
from rag_core.parsing.outline import outlined
from rag_core.parsing.tables import Cell, Covered, table
from rag_core.types import Document, Value

VERSION = 3

_MEDIA_TYPE = "application/rtf"
_MAGIC = b"{\\rtf"
_HEADING = re.compile(r"heading ?([1-9])")
_CONTENTS = re.compile(r"toc ?\d")
_BODY_TEXT = 9
_MARKERS = ("listtext", "pntext")
_PROPERTIES = ("title", "author", "subject", "keywords", "doccomm")
_DATES = ("creatim", "revtim")
_BREAKS = {"par": "\n", "sect": "\n", "cell": " ", "row": " ", "nestcell": " ", "nestrow": " "}
_MERGES = {"clvmrg": Covered.ABOVE, "clmrg": Covered.LEFT}


class RtfParser:
    def parse(self, uri: str, body: bytes) -> Document:
        if not body:
            raise DocumentError("parse", "empty", status="skipped")
        if not body.lstrip().startswith(_MAGIC):
            raise DocumentError("parse", "no RTF: it does not begin with {\\rtf")
        reading = _Reading()
        text = joined(reading.blocks(body))
        return outlined(reading.described(Document(uri=uri, text=text, media_type=_MEDIA_TYPE)))


@dataclass(slots=True)
class _Layout:
    """What holds for a paragraph until the next `pard`."""

    style: int = -1
    level: int = 0
    in_table: bool = False


@dataclass(slots=True)
class _Row:
    """`merges` has, for each cell that the row's definition names, what covers it."""

    cells: list[str] = field(default_factory=list)
    merges: list[Covered | None] = field(default_factory=list)
    merge: Covered | None = None

    def texts(self) -> list[Cell]:
        unmerged = [None] * len(self.cells)
        return [merge or text for text, merge in zip(self.cells, [*self.merges, *unmerged], strict=False)]


class _Reading:
    """One document from its beginning to its end."""

    def __init__(self) -> None:
        self._texts: defaultdict[str, list[str]] = defaultdict(list)
        self._layout, self._marker = _Layout(), ""
        self._row, self._rows = _Row(), list[list[Cell]]()
        self._after, self._notes, self._furniture = list[Block](), list[str](), dict[str, None]()
        self._style, self._styles = _Layout(), dict[int, tuple[str, int]]()
        self._properties: dict[str, str] = {}
        self._dates: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def blocks(self, body: bytes) -> Iterator[Block]:
        for event in events(body):
            if event.text:
                self._take(event)
            elif event.word == "}":
                self._close(event.kind)
            elif event.kind:
                self._word_beside(event)
            else:
                yield from self._word(event.word, event.number)
        yield from self._paragraph()
        yield from self._table()
        for number, text in enumerate(self._notes, 1):
            yield paragraph(f"[^{number}]: {text}")
        for text in self._furniture:
            yield paragraph(text)

    def described(self, document: Document) -> Document:
        said = self._properties
        dates = [date for kind in reversed(_DATES) if (date := _written(self._dates[kind]))]
        metadata: dict[str, Value] = {
            "author": said.get("author", ""),
            "date": dates[0] if dates else "",
            "description": said.get("doccomm", "") or said.get("subject", ""),
            "tags": [tag for each in re.split("[,;]", said.get("keywords", "")) if (tag := each.strip())],
        }
        known = {key: value for key, value in metadata.items() if value}
        return replace(document, title=said.get("title", ""), metadata=known)

    def _take(self, event: Event) -> None:
        self._texts[event.kind].append(event.text)
        if event.kind == "stylesheet" and event.text.endswith(";"):
            name = self._taken("stylesheet").rstrip(";").lower()
            self._styles[self._style.style] = (name, self._style.level or _named(name))
            self._style = _Layout()

    def _taken(self, kind: str) -> str:
        return "".join(self._texts.pop(kind, [])).strip()

    def _close(self, kind: str) -> None:
        """A group has ended whose text was not the document's own."""
        if kind in _MARKERS:
            text = self._taken(kind)
            self._marker = text if any(map(str.isalnum, text)) else "-"
        elif kind == "footnote":
            self._notes.append(" ".join(self._taken(kind).split()))
            self._texts[""].append(f"[^{len(self._notes)}]")
        elif kind == "annotation":
            self._after.append(comment(self._taken("atnauthor"), self._taken(kind)))
        elif kind in FURNITURE:
            lines = self._taken(kind).splitlines()
            self._furniture |= {line.strip(): None for line in lines if not is_page_number(line)}
        elif kind in _PROPERTIES:
            self._properties[kind] = clean(self._taken(kind))

    def _word_beside(self, event: Event) -> None:
        if event.kind in _DATES and event.number is not None:
            self._dates[event.kind][event.word] = event.number
        elif event.kind == "stylesheet":
            _lay_out(self._style, event.word, event.number)
        elif event.word in _BREAKS:
            self._texts[event.kind].append(_BREAKS[event.word])

    def _word(self, word: str, number: int | None) -> Iterator[Block]:
        if word in ("par", "sect") and not self._layout.in_table:
            yield from self._paragraph()
        elif word == "pard":
            self._layout = _Layout()
        elif word in ("trowd", "cellx", "cell", "row", *_MERGES):
            self._tabulate(word)
        elif word in _BREAKS:
            self._texts[""].append(_BREAKS[word])
        else:
            _lay_out(self._layout, word, number)

    def _tabulate(self, word: str) -> None:
        if word == "trowd":
            self._row.merges = []
        elif word in _MERGES:
            self._row.merge = _MERGES[word]
        elif word == "cellx":
            self._row.merges.append(self._row.merge)
            self._row.merge = None
        elif word == "cell":
            marker, self._marker = self._marker, ""
            self._row.cells.append(f"{marker} {self._taken('')}".strip())
        else:
            self._rows.append(self._row.texts())
            self._row = _Row(merges=self._row.merges)

    def _paragraph(self) -> Iterator[Block]:
        text, marker = self._taken(""), self._marker
        self._marker = ""
        name, level = self._styles.get(self._layout.style, ("", 0))
        level = self._layout.level or level
        after, self._after = self._after, []
        if text:
            yield from self._table()
        if text and not _CONTENTS.fullmatch(name):
            yield _block(text, marker, level)
        yield from after

    def _table(self) -> Iterator[Block]:
        rows, self._rows = self._rows, []
        yield table(rows)


def _block(text: str, marker: str, level: int) -> Block:
    if level:
        return heading(level, text if marker in ("", "-") else f"{marker} {text}")
    return listed(text, marker) if marker else paragraph(text)


def _lay_out(layout: _Layout, word: str, number: int | None) -> None:
    match word:
        case "s":
            layout.style = -1 if number is None else number
        case "outlinelevel" if number is not None:
            layout.level = number + 1 if 0 <= number < _BODY_TEXT else 0
        case "intbl":
            layout.in_table = True


def _named(style: str) -> int:
    built_in = _HEADING.fullmatch(style)
    return int(built_in[1]) if built_in else 1 if style == "title" else 0


def _written(date: dict[str, int]) -> str:
    year, month, day = (date.get(part, 0) for part in ("yr", "mo", "dy"))
    return f"{year:04d}-{month:02d}-{day:02d}" if 0 < year < 10_000 and 0 < month < 13 and 0 < day < 32 else ""
