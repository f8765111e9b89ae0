"""Markdown's tables with a pipe at both ends of each row, as chunkers expect them. Its version is `markdown`'s."""

import re

from rag_core.parsing.fences import FENCE, Fence

_QUOTE = r" {0,3}(?:>[ \t]?)++ {0,3}"
_LEAD = rf"(?:{_QUOTE}| {{0,3}})"
_DASHES = r"[ \t]*+:?-+:?[ \t]*+"
_MARK = re.compile(rf"^(?:{FENCE}|{_LEAD}(?P<rule>\|?{_DASHES}(?:\|{_DASHES})++\|?)[ \t]*)$", re.MULTILINE)
# What begins another block ends a table
_CELLS = r"(?![ \t>]|[-*+#][ \t]|\d{1,9}[.)][ \t])[^\n|]*\|[^\n]*"
_ROWS, _QUOTED_ROWS = (re.compile(rf"(?:\n{lead}{_CELLS})*+") for lead in (" {0,3}", _QUOTE))
_ROW = re.compile(rf"^({_LEAD})([^\s>][^\n]*)$", re.MULTILINE)
_PIPE = re.compile(r"(?<!\\)\|")


def piped(text: str) -> str:
    """Code stays as it is."""
    fence, parts, done = Fence(), list[str](), 0
    for mark in _MARK.finditer(text):
        begin = text.rfind("\n", 0, max(mark.start() - 1, 0)) + 1
        if fence.hides(mark) or begin < done or not _heads(text[begin : mark.start()], mark["rule"]):
            continue
        rows = (_QUOTED_ROWS if ">" in mark[0] else _ROWS).match(text, mark.end())
        end = rows.end() if rows else mark.end()
        parts += [text[done:begin], _ROW.sub(_bounded, text[begin:end])]
        done = end
    return "".join([*parts, text[done:]])


def _heads(line: str, rule: str) -> bool:
    """As many cells as the rule below has; Markdown knows a table by that."""
    row = _ROW.match(line)
    return row is not None and _width(row[2]) == _width(rule)


def _width(row: str) -> int:
    ends = row.startswith("|") + (row.rstrip().endswith("|") and not row.rstrip().endswith("\\|"))
    return len(_PIPE.findall(row)) - ends + 1


def _bounded(row: re.Match[str]) -> str:
    cells = row[2].rstrip()
    opening = "" if cells.startswith("|") else "| "
    closing = "" if cells.endswith("|") and not cells.endswith("\\|") else " |"
    return f"{row[1]}{opening}{cells}{closing}"
