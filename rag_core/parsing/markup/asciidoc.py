"""AsciiDoc as Markdown: headings, lists, tables, code; attributes, anchors and block settings are left out."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile, zip_longest

from rag_core.parsing.blocks import Block, heading, joined, listed, paragraph
from rag_core.parsing.encoding import decoded
from rag_core.parsing.outline import outlined
from rag_core.parsing.tables import table
from rag_core.types import Document

VERSION = 3

_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_SETTING = re.compile(r"\[[^\[\]]*\]|:!?[\w-]+!?:.*|//(?!//).*|\+|<<<|toc::\[\]|include::.*")
_CAPTION = re.compile(r"\.(?=[^\s.])(.*)")
_ITEM = re.compile(r"[ \t]*(\*{1,6}|-|\.{1,6}|\d{1,9}[.)])[ \t]+(\S.*)")
_IMAGE = re.compile(r"image::?\S+\[([^\],]*)[^\]]*\]")
_CODE = re.compile(r"-{4,}|\.{4,}|`{3,}.*|\+{4,}")
_COMMENT = re.compile(r"/{4,}")
_FRAME = re.compile(r"={4,}|\*{4,}|_{4,}|--")
_TABLE = re.compile(r"[|,:!]={3,}")
_COLUMNS = re.compile(r"""\bcols=(?:"([^"]*)"|([^\s,\]]+))""")
_TIMES = re.compile(r"(\d{1,2})\*")
_MACRO = re.compile(r"(?:https?://\S+?|link:\S+?|xref:\S+?|btn:|kbd:|menu:\S+?|mailto:\S+?)\[([^\]]*)\]")
_ANCHOR = re.compile(r"\[\[[^\]]*\]\]|<<[^,<>]*,([^<>]*)>>")
_CELL = re.compile(r"(?:(?:^|(?<=\s))(?:\d*(?:\.\d+)?[+*])?[<^>.]*[aehlmsdv]?)?(?<!\\)\|")


class AsciidocParser:
    def parse(self, uri: str, body: bytes) -> Document:
        lines = decoded(body).split("\n")
        return outlined(Document(uri=uri, text=joined(_blocks(lines)), media_type="text/asciidoc"))


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    index = 0
    while index < len(lines):
        line = lines[index].strip()
        if _opens(line):
            end = _closing(lines, index, line)
            yield from _delimited(line, lines[index + 1 : end], _columns(lines, index))
            index = end + 1
        elif line.startswith("|"):
            end = _while(lines, index, lambda each: each.lstrip().startswith("|"))
            yield table(_cells(row.strip().rstrip("|")) for row in lines[index:end])
            index = end
        elif _is_alone(line):
            yield from _single(line, lines[index])
            index += 1
        else:
            end = _while(lines, index, lambda each: not (_opens(each.strip()) or _is_alone(each.strip())))
            yield paragraph(_inline(" ".join(each.strip() for each in lines[index:end])))
            index = end


def _opens(line: str) -> bool:
    return any(pattern.fullmatch(line) for pattern in (_CODE, _COMMENT, _TABLE))


def _closing(lines: Sequence[str], opening: int, mark: str) -> int:
    """Where the same mark stands again; the end, where nothing closes."""
    mark = mark[:3] if mark.startswith("```") else mark
    return next((index for index in range(opening + 1, len(lines)) if lines[index].strip() == mark), len(lines))


def _columns(lines: Sequence[str], opening: int) -> int:
    """As many as the settings right above say; 0 if they do not."""
    above = (lines[index].strip() for index in reversed(range(opening)))
    settings = takewhile(lambda line: _SETTING.fullmatch(line) or _CAPTION.fullmatch(line), above)
    found = next((columns for line in settings if (columns := _COLUMNS.search(line))), None)
    if found is None:
        return 0
    each = (_TIMES.match(column.strip()) for column in re.split("[,;]", found[1] or found[2]))
    return sum(int(times[1]) if times else 1 for times in each)


def _delimited(mark: str, inside: Sequence[str], columns: int) -> Iterator[Block]:
    if _TABLE.fullmatch(mark):
        yield table(_rows(inside, columns))
    elif not _COMMENT.fullmatch(mark):
        yield Block("\n".join(["```", *inside, "```"]))


def _is_alone(line: str) -> bool:
    patterns = (_HEADING, _SETTING, _CAPTION, _ITEM, _FRAME)
    return not line or _IMAGE.match(line) is not None or any(pattern.fullmatch(line) for pattern in patterns)


def _single(line: str, raw: str) -> Iterator[Block]:
    if found := _HEADING.fullmatch(line):
        yield heading(len(found[1]), _inline(found[2]))
    elif found := _ITEM.fullmatch(raw.rstrip()):
        yield _listed(found, len(raw) - len(raw.lstrip()))
    elif found := _CAPTION.fullmatch(line):
        yield paragraph(_inline(found[1]))
    elif _IMAGE.match(line):
        yield paragraph(_inline(line))


def _listed(found: re.Match[str], indent: int) -> Block:
    mark = found[1]
    level = indent // 2 if indent else len(mark) - 1 if mark[0] in "*." else 0
    marker = mark if mark[0].isdigit() else "1." if mark[0] == "." else "-"
    return listed(_inline(found[2]), marker, min(level, 6))


def _inline(text: str) -> str:
    return _ANCHOR.sub(lambda anchor: anchor[1] or "", _MACRO.sub(r"\1", _IMAGE.sub(r"\1", text)))


def _rows(lines: Sequence[str], columns: int) -> list[list[str]]:
    """One line a row, or one line a cell, in as many columns as the first line has, or else as the settings say. A line
    that begins no cell belongs to the one before it."""
    rows = [_cells(line) for line in _joined(filter(str.strip, lines))]
    header = 1 if rows and len(rows[0]) > 1 else 0
    width = len(rows[0]) if header else columns
    if width > 1 and len(rows) > header and all(len(row) == 1 for row in rows[header:]):
        cells = [row[0] for row in rows[header:]]
        return [*rows[:header], *(list(row) for row in zip_longest(*[iter(cells)] * width, fillvalue=""))]
    return rows


def _joined(lines: Iterable[str]) -> list[str]:
    joined: list[str] = []
    for line in lines:
        if joined and not _CELL.search(line):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return joined


def _cells(line: str) -> list[str]:
    cells = [_inline(cell.strip()) for cell in _CELL.split(line.strip())]
    return cells[1:] if len(cells) > 1 and not cells[0] else cells


def _while(lines: Sequence[str], start: int, belongs: Callable[[str], bool]) -> int:
    return next((index for index in range(start + 1, len(lines)) if not belongs(lines[index])), len(lines))
