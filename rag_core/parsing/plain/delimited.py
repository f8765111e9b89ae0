"""CSV and TSV as one Markdown table."""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import joined
from rag_core.parsing.encoding import decoded
from rag_core.parsing.tables import table
from rag_core.types import Document

VERSION = 2

_DELIMITERS = ",\t;|"
_SEPARATOR = re.compile(r"sep=([^\w\s]|\t)[ \t]*\n", re.IGNORECASE)
_SAMPLE_ROWS = 50
_SAMPLE = 65_536
# A few wide rows among many narrow ones: a table pads them all
_MOST_PADDING = 10

# Of the whole process, and 128 KiB otherwise: how long a cell may be is the document's limit alone
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


class DelimitedParser:
    """The first row names the columns; a row that is longer gets columns without a name."""

    def parse(self, uri: str, body: bytes) -> Document:
        text, delimiter = _told(decoded(body))
        rows = _rows(text, delimiter or _delimiter(text[:_SAMPLE]))
        _refuse(rows)
        return Document(uri=uri, text=joined([table(rows)]), media_type="text/csv")


def _told(text: str) -> tuple[str, str]:
    """The table, and the delimiter that a line before it names, for Excel; empty where none does."""
    found = _SEPARATOR.match(text)
    return (text[found.end() :], found[1]) if found else (text, "")


def _rows(text: str, delimiter: str) -> list[list[str]]:
    try:
        rows = list(_read(text, delimiter))
        if text.count('"') % 2:  # the last one may have swallowed what is behind it
            unquoted = list(_read(text, delimiter, csv.QUOTE_NONE))
            rows = max(rows, unquoted, key=lambda read: (_evenness(read)[0], len(read)))
    except csv.Error as error:
        raise DocumentError("parse", f"no readable table: {error}") from error
    return rows


def _read(text: str, delimiter: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> Iterator[list[str]]:
    # splitlines would also cut at U+2028, and within quotes
    lines = text.split("\n") if '"' not in text else _lines(text)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, quoting=quoting)


def _lines(text: str) -> Iterator[str]:
    return (f"{line}\n" for line in text.split("\n"))


def _delimiter(sample: str) -> str:
    """That which cuts most rows into equally many cells, and of those the one with most cells."""
    whole, _, _ = sample.rpartition("\n")
    return max(_DELIMITERS, key=lambda delimiter: _agreement(whole or sample, delimiter))


def _agreement(sample: str, delimiter: str) -> tuple[float, int]:
    try:
        return _evenness(islice(_read(sample, delimiter), _SAMPLE_ROWS))
    except csv.Error:
        return 0.0, 0


def _evenness(rows: Iterable[Sequence[str]]) -> tuple[float, int]:
    """How many of them, as a share, have equally many cells, and how many these are; zeros for one cell each."""
    widths = [len(row) for row in rows if row]
    width, even = Counter(widths).most_common(1)[0] if widths else (1, 0)
    return (even / len(widths), width) if width > 1 else (0.0, 0)


def _refuse(rows: Sequence[Sequence[str]]) -> None:
    width, cells = max(map(len, rows), default=0), sum(map(len, rows))
    if width * len(rows) > 1_000_000 and width * len(rows) > _MOST_PADDING * cells:
        raise DocumentError("parse", f"no table: {len(rows)} rows, one of them with {width} cells")
