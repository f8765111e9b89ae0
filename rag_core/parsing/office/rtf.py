"""Rich Text Format, parsed here: the library striprtf has no headings, notes, merged cells or properties."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import (
    Block,
    clean_text,
    comment,
    heading,
    is_page_number,
    join_blocks,
    list_item,
    paragraph,
)
from rag_core.parsing.office.heading_levels import outline_level, style_level
from rag_core.parsing.office.rtf_events import FURNITURE, Event, EventReader
from rag_core.parsing.outline import with_outline
from rag_core.parsing.tables import Cell, CoveredBy, table
from rag_core.types import Document, Value

VERSION = 3

_MEDIA_TYPE = "application/rtf"
_MAGIC = b"{\\rtf"
_CONTENTS_STYLE = re.compile(r"toc ?\d")
_MARKERS = ("listtext", "pntext")
_PROPERTIES = ("title", "author", "subject", "keywords", "doccomm")
_REVISED, _CREATED = "revtim", "creatim"
_BREAKS = {"par": "\n", "sect": "\n", "cell": " ", "row": " ", "nestcell": " ", "nestrow": " "}
_MERGES = {"clvmrg": CoveredBy.ABOVE, "clmrg": CoveredBy.LEFT}


class RtfParser:
    def parse(self, uri: str, body: bytes) -> Document:
        if not body:
            raise DocumentError("parse", "empty", status="skipped")
        if not body.lstrip().startswith(_MAGIC):
            raise DocumentError("parse", "not an RTF document: it does not begin with {\\rtf")
        reader = _RtfReader()
        text = join_blocks(reader.blocks(body))
        return with_outline(reader.with_properties(Document(uri=uri, text=text, media_type=_MEDIA_TYPE)))


@dataclass(slots=True)
class _Layout:
    """The properties of the current paragraph, or of a style. They hold until the next `pard`."""

    style: int = -1
    level: int = 0
    in_table: bool = False

    def apply(self, word: str, number: int | None) -> None:
        match word:
            case "s":
                self.style = -1 if number is None else number
            case "outlinelevel" if number is not None:
                self.level = outline_level(number)
            case "intbl":
                self.in_table = True


@dataclass(slots=True)
class _Row:
    """The row of a table that is being read. `merges` holds, for each cell of its definition, what covers it."""

    cells: list[str] = field(default_factory=list)
    merges: list[CoveredBy | None] = field(default_factory=list)
    merge: CoveredBy | None = None

    def define(self, word: str) -> None:
        match word:
            case "trowd":
                self.merges = []
            case "cellx":
                self.merges.append(self.merge)
                self.merge = None
            case _:
                self.merge = _MERGES[word]

    def to_cells(self) -> list[Cell]:
        unmerged = [None] * len(self.cells)
        return [merge or text for text, merge in zip(self.cells, [*self.merges, *unmerged], strict=False)]


class _RtfReader:
    """Reads one document in its order. `_texts` holds the text that is not part of a block yet, by kind of group."""

    def __init__(self) -> None:
        self._texts: defaultdict[str, list[str]] = defaultdict(list)
        self._layout, self._marker = _Layout(), ""
        self._row, self._rows = _Row(), list[list[Cell]]()
        self._comments, self._notes, self._furniture = list[Block](), list[str](), dict[str, None]()
        self._style, self._styles = _Layout(), dict[int, tuple[str, int]]()
        self._properties: dict[str, str] = {}
        self._dates: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def blocks(self, body: bytes) -> Iterator[Block]:
        """Yields the document's text, then its notes, then its headers and footers."""
        for event in EventReader(body).events():
            if event.text:
                self._texts[event.kind].append(event.text)
                if event.kind == "stylesheet" and event.text.endswith(";"):
                    name = self._take_text("stylesheet").rstrip(";").lower()
                    self._styles[self._style.style] = (name, self._style.level or style_level(name))
                    self._style = _Layout()
            elif event.word == "}":
                self._end_group(event.kind)
            elif event.kind:
                self._read_group_word(event)
            else:
                yield from self._read_word(event.word, event.number)
        yield from self._paragraph_blocks()
        yield from self._table_blocks()
        for number, text in enumerate(self._notes, 1):
            yield paragraph(f"[^{number}]: {text}")
        for text in self._furniture:
            yield paragraph(text)

    def with_properties(self, document: Document) -> Document:
        """Adds title, author, date, description and tags."""
        properties = self._properties
        dates = [date for kind in (_REVISED, _CREATED) if (date := _format_date(self._dates[kind]))]
        keywords = re.split("[,;]", properties.get("keywords", ""))
        metadata: dict[str, Value] = {
            "author": properties.get("author", ""),
            "date": dates[0] if dates else "",
            "description": properties.get("doccomm", "") or properties.get("subject", ""),
            "tags": [tag for keyword in keywords if (tag := keyword.strip())],
        }
        metadata = {key: value for key, value in metadata.items() if value}
        return replace(document, title=properties.get("title", ""), metadata=metadata)

    def _take_text(self, kind: str) -> str:
        """Returns the text of a kind of group, and removes it."""
        return "".join(self._texts.pop(kind, [])).strip()

    def _end_group(self, kind: str) -> None:
        """Uses the text of a group that is not part of the document's own text."""
        if kind in _MARKERS:
            text = self._take_text(kind)
            self._marker = text if any(map(str.isalnum, text)) else "-"
        elif kind == "footnote":
            self._notes.append(" ".join(self._take_text(kind).split()))
            self._texts[""].append(f"[^{len(self._notes)}]")
        elif kind == "annotation":
            self._comments.append(comment(self._take_text("atnauthor"), self._take_text(kind)))
        elif kind in FURNITURE:
            lines = self._take_text(kind).splitlines()
            self._furniture |= {line.strip(): None for line in lines if not is_page_number(line)}
        elif kind in _PROPERTIES:
            self._properties[kind] = clean_text(self._take_text(kind))

    def _read_group_word(self, event: Event) -> None:
        """Reads a word in a group that is not part of the document's own text."""
        if event.kind in (_REVISED, _CREATED) and event.number is not None:
            self._dates[event.kind][event.word] = event.number
        elif event.kind == "stylesheet":
            self._style.apply(event.word, event.number)
        elif event.word in _BREAKS:
            self._texts[event.kind].append(_BREAKS[event.word])

    def _read_word(self, word: str, number: int | None) -> Iterator[Block]:
        if word in ("par", "sect") and not self._layout.in_table:
            yield from self._paragraph_blocks()
        elif word == "pard":
            self._layout = _Layout()
        elif word in ("trowd", "cellx", *_MERGES):
            self._row.define(word)
        elif word == "cell":
            marker, self._marker = self._marker, ""
            self._row.cells.append(f"{marker} {self._take_text('')}".strip())
        elif word == "row":
            self._rows.append(self._row.to_cells())
            self._row = _Row(merges=self._row.merges)
        elif word in _BREAKS:
            self._texts[""].append(_BREAKS[word])
        else:
            self._layout.apply(word, number)

    def _paragraph_blocks(self) -> Iterator[Block]:
        """Yields the table that has ended, the current paragraph and its comments."""
        text, marker = self._take_text(""), self._marker
        self._marker = ""
        style, level = self._styles.get(self._layout.style, ("", 0))
        level = self._layout.level or level
        comments, self._comments = self._comments, []
        if text:
            yield from self._table_blocks()
        if text and not _CONTENTS_STYLE.fullmatch(style):
            if level:
                yield heading(level, text if marker in ("", "-") else f"{marker} {text}")
            else:
                yield list_item(text, marker) if marker else paragraph(text)
        yield from comments

    def _table_blocks(self) -> Iterator[Block]:
        rows, self._rows = self._rows, []
        yield table(rows)


def _format_date(date: dict[str, int]) -> str:
    """A date in ISO 8601; empty if a part of it is missing or out of range."""
    year, month, day = (date.get(part, 0) for part in ("yr", "mo", "dy"))
    return f"{year:04d}-{month:02d}-{day:02d}" if 0 < year < 10_000 and 0 < month < 13 and 0 < day < 32 else ""
