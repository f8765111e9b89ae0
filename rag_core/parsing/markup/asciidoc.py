"""AsciiDoc as Markdown: headings, lists, tables, code. Attributes, anchors and block settings are left out."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile, zip_longest

from rag_core.parsing.blocks import Block, heading, join_blocks, list_item, paragraph
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.outline import with_outline
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
_REPEATED_COLUMN = re.compile(r"(\d{1,2})\*")
_MACRO = re.compile(r"(?:https?://\S+?|link:\S+?|xref:\S+?|btn:|kbd:|menu:\S+?|mailto:\S+?)\[([^\]]*)\]")
_ANCHOR = re.compile(r"\[\[[^\]]*\]\]|<<[^,<>]*,([^<>]*)>>")
_CELL = re.compile(r"(?:(?:^|(?<=\s))(?:\d*(?:\.\d+)?[+*])?[<^>.]*[aehlmsdv]?)?(?<!\\)\|")


class AsciidocParser:
    def parse(self, uri: str, body: bytes) -> Document:
        lines = decode_text(body).split("\n")
        return with_outline(Document(uri=uri, text=join_blocks(_parse_blocks(lines)), media_type="text/asciidoc"))


def _parse_blocks(lines: Sequence[str]) -> Iterator[Block]:
    index = 0
    while index < len(lines):
        line = lines[index].strip()
        if _opens_delimited_block(line):
            mark = "```" if line.startswith("```") else line
            end = next((i for i in range(index + 1, len(lines)) if lines[i].strip() == mark), len(lines))
            content = lines[index + 1 : end]
            if _TABLE.fullmatch(line):
                yield table(_parse_rows(content, _count_columns(lines, index)))
            elif not _COMMENT.fullmatch(line):
                yield Block("\n".join(["```", *content, "```"]))
            index = end + 1
        elif line.startswith("|"):
            end = _find_end(lines, index, lambda line: line.lstrip().startswith("|"))
            yield table(_split_row(row.strip().rstrip("|")) for row in lines[index:end])
            index = end
        elif _is_single_line(line):
            yield _parse_single_line(lines[index])
            index += 1
        else:
            end = _find_end(lines, index, lambda line: not (_opens_delimited_block(line) or _is_single_line(line)))
            yield paragraph(_inline_text(" ".join(line.strip() for line in lines[index:end])))
            index = end


def _find_end(lines: Sequence[str], start: int, belongs: Callable[[str], bool]) -> int:
    """The index of the first line after `start` that does not belong to the block; the end if all lines do."""
    return next((index for index in range(start + 1, len(lines)) if not belongs(lines[index])), len(lines))


def _opens_delimited_block(raw: str) -> bool:
    return any(pattern.fullmatch(raw.strip()) for pattern in (_CODE, _COMMENT, _TABLE))


def _is_single_line(raw: str) -> bool:
    """True if the line is a block of its own, or blank."""
    line = raw.strip()
    patterns = (_HEADING, _SETTING, _CAPTION, _ITEM, _FRAME)
    return not line or _IMAGE.match(line) is not None or any(pattern.fullmatch(line) for pattern in patterns)


def _parse_single_line(raw: str) -> Block:
    """The block of the line; an empty block for settings, frames and blank lines."""
    line = raw.strip()
    if match := _HEADING.fullmatch(line):
        return heading(len(match[1]), _inline_text(match[2]))
    if match := _ITEM.fullmatch(raw.rstrip()):
        mark, indent = match[1], len(raw) - len(raw.lstrip())
        level = indent // 2 if indent else len(mark) - 1 if mark[0] in "*." else 0
        marker = mark if mark[0].isdigit() else "1." if mark[0] == "." else "-"
        return list_item(_inline_text(match[2]), marker, min(level, 6))
    if match := _CAPTION.fullmatch(line):
        return paragraph(_inline_text(match[1]))
    return paragraph(_inline_text(line)) if _IMAGE.match(line) else Block("")


def _inline_text(text: str) -> str:
    return _ANCHOR.sub(lambda anchor: anchor[1] or "", _MACRO.sub(r"\1", _IMAGE.sub(r"\1", text)))


def _count_columns(lines: Sequence[str], opening: int) -> int:
    """The number of columns that the settings directly above a table declare; 0 if they declare none."""
    above = (lines[index].strip() for index in reversed(range(opening)))
    settings = takewhile(lambda line: _SETTING.fullmatch(line) or _CAPTION.fullmatch(line), above)
    match = next((match for line in settings if (match := _COLUMNS.search(line))), None)
    if match is None:
        return 0
    repeats = (_REPEATED_COLUMN.match(column.strip()) for column in re.split("[,;]", match[1] or match[2]))
    return sum(int(repeat[1]) if repeat else 1 for repeat in repeats)


def _parse_rows(lines: Sequence[str], columns: int) -> list[list[str]]:
    """The rows of a table that is written with one row or one cell on each line.

    A table of one cell a line has as many columns as its first line has cells, or else `columns`. A line that begins no
    cell continues the line before it.
    """
    logical_lines: list[str] = []
    for line in filter(str.strip, lines):
        if logical_lines and not _CELL.search(line):
            logical_lines[-1] += f" {line.strip()}"
        else:
            logical_lines.append(line)
    rows = [_split_row(line) for line in logical_lines]
    header = 1 if rows and len(rows[0]) > 1 else 0
    width = len(rows[0]) if header else columns
    if width > 1 and len(rows) > header and all(len(row) == 1 for row in rows[header:]):
        cells = [row[0] for row in rows[header:]]
        return [*rows[:header], *(list(row) for row in zip_longest(*[iter(cells)] * width, fillvalue=""))]
    return rows


def _split_row(line: str) -> list[str]:
    cells = [_inline_text(cell.strip()) for cell in _CELL.split(line.strip())]
    return cells[1:] if len(cells) > 1 and not cells[0] else cells
