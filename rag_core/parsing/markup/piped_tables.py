"""Markdown tables with a pipe at both ends of each row, as chunkers expect them.

The VERSION of `markdown` covers this module.
"""

import re

from rag_core.parsing.fences import FENCE, FenceState

_QUOTE = r" {0,3}(?:>[ \t]?)++ {0,3}"
_LEAD = rf"(?:{_QUOTE}| {{0,3}})"
_DELIMITER_CELL = r"[ \t]*+:?-+:?[ \t]*+"
_MARK = re.compile(
    rf"^(?:{FENCE}|{_LEAD}(?P<rule>\|?{_DELIMITER_CELL}(?:\|{_DELIMITER_CELL})++\|?)[ \t]*)$", re.MULTILINE
)
# A line that begins another block ends a table
_CELLS = r"(?![ \t>]|[-*+#][ \t]|\d{1,9}[.)][ \t])[^\n|]*\|[^\n]*"
_ROWS, _QUOTED_ROWS = (re.compile(rf"(?:\n{lead}{_CELLS})*+") for lead in (" {0,3}", _QUOTE))
_ROW = re.compile(rf"^({_LEAD})([^\s>][^\n]*)$", re.MULTILINE)
_PIPE = re.compile(r"(?<!\\)\|")


def add_outer_pipes(text: str) -> str:
    """Adds the missing pipes at the ends of table rows. Code stays unchanged."""
    fence, parts, copied = FenceState(), list[str](), 0
    for mark in _MARK.finditer(text):
        start = text.rfind("\n", 0, max(mark.start() - 1, 0)) + 1
        header = _ROW.match(text[start : mark.start()])
        if fence.advance(mark) or start < copied or not header:
            continue
        if _count_cells(header[2]) != _count_cells(mark["rule"]):  # then it is not a table in Markdown
            continue
        rows = (_QUOTED_ROWS if ">" in mark[0] else _ROWS).match(text, mark.end())
        end = rows.end() if rows else mark.end()
        parts += [text[copied:start], _ROW.sub(_close_row, text[start:end])]
        copied = end
    return "".join([*parts, text[copied:]])


def _count_cells(row: str) -> int:
    outer_pipes = row.startswith("|") + (row.rstrip().endswith("|") and not row.rstrip().endswith("\\|"))
    return len(_PIPE.findall(row)) - outer_pipes + 1


def _close_row(row: re.Match[str]) -> str:
    cells = row[2].rstrip()
    opening = "" if cells.startswith("|") else "| "
    closing = "" if cells.endswith("|") and not cells.endswith("\\|") else " |"
    return f"{row[1]}{opening}{cells}{closing}"
