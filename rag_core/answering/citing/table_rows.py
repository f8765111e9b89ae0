"""The rows of a passage's tables, written with the names of their columns."""

import re
from collections.abc import Mapping
from functools import lru_cache

from rag_core.chunking.tables import RULE, table_row, table_rows
from rag_core.types import Passage

MAX_CACHED_PASSAGES = 64

_BAR = re.compile(r"(?<!\\)\|")


def name_columns(passage: Passage) -> Mapping[tuple[int, int], str]:
    """The text of each row that has column names, such as `Code: 52; Level: amber`, by its span in the passage.

    A passage that begins inside a table has the names in the prefix of its first chunk.
    """
    *_, last_line = ["", *passage.chunks[0].prefix.splitlines()]
    return _name_columns(passage.text, table_row(last_line))


@lru_cache(MAX_CACHED_PASSAGES)
def _name_columns(text: str, cut_header: str) -> Mapping[tuple[int, int], str]:
    above = f"{cut_header}\n|-|\n" if cut_header and table_row(text) else ""
    whole = above + text
    lines = {row: table_row(whole[row.start : row.end]) for row in table_rows(whole)}
    ruled = {row.header for row, line in lines.items() if RULE.fullmatch(line)}
    named = {
        (row.start - len(above), row.end - len(above)): _name_cells(line, row.header)
        for row, line in lines.items()
        if row.start >= len(above) and row.header in ruled and not RULE.fullmatch(line)
    }
    return {span: line for span, line in named.items() if line}


def _name_cells(line: str, header: str) -> str:
    names, cells = _split_cells(header), _split_cells(line)
    names += [""] * (len(cells) - len(names))
    pairs = zip(names, cells, strict=False)
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)


def _split_cells(line: str) -> list[str]:
    return [" ".join(cell.split()) for cell in _BAR.split(line.strip().strip("|"))]
