"""CSV and TSV as one Markdown table."""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import join_blocks
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.tables import table
from rag_core.types import Document

VERSION = 3

_DELIMITERS = ",\t;|"
_SEPARATOR_LINE = re.compile(r"sep=([^\w\s]|\t)[ \t]*\n", re.IGNORECASE)
_SAMPLE_ROWS = 50
_SAMPLE_CHARS = 65_536
# A table pads all rows to the widest: a few wide rows among many narrow ones would grow it without bound
_MAX_PADDING = 10

# This limit applies to the whole process, and is 128 KiB by default: only the document's size should limit a cell
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


class DelimitedParser:
    """The first row is the header. The extra columns of a longer row have no name."""

    def parse(self, uri: str, body: bytes) -> Document:
        text = decode_text(body)
        if separator := _SEPARATOR_LINE.match(text):  # the first line of some files for Excel
            text, delimiter = text[separator.end() :], separator[1]
        else:
            delimiter = _guess_delimiter(text[:_SAMPLE_CHARS])
        try:
            rows = list(_read_csv(text, delimiter))
            if text.count('"') % 2:  # the last quote can have swallowed the rows after it
                unquoted = list(_read_csv(text, delimiter, csv.QUOTE_NONE))
                rows = max(rows, unquoted, key=lambda rows: (_measure_evenness(rows)[0], len(rows)))
        except csv.Error as error:
            raise DocumentError("parse", f"not a readable table: {error}") from error
        width, cells = max(map(len, rows), default=0), sum(map(len, rows))
        if width * len(rows) > 1_000_000 and width * len(rows) > _MAX_PADDING * cells:
            raise DocumentError("parse", f"not a table: {len(rows)} rows, one of them with {width} cells")
        return Document(uri=uri, text=join_blocks([table(rows)]), media_type="text/csv")


def _guess_delimiter(sample: str) -> str:
    """The delimiter that splits most rows into equally many cells; of several such, the one with most cells."""
    complete_lines, _, _ = sample.rpartition("\n")
    scores: dict[str, tuple[float, int]] = {}
    for delimiter in _DELIMITERS:
        try:
            scores[delimiter] = _measure_evenness(islice(_read_csv(complete_lines or sample, delimiter), _SAMPLE_ROWS))
        except csv.Error:
            scores[delimiter] = 0.0, 0
    return max(scores, key=scores.__getitem__)


def _read_csv(text: str, delimiter: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> Iterator[list[str]]:
    # splitlines would also split at U+2028, and within quotes
    lines = text.split("\n")
    with_ends = (f"{line}\n" for line in lines) if '"' in text else lines
    return csv.reader(with_ends, delimiter=delimiter, skipinitialspace=True, quoting=quoting)


def _measure_evenness(rows: Iterable[Sequence[str]]) -> tuple[float, int]:
    """The largest share of rows with equally many cells, and their number of cells; zeros if that is one cell."""
    widths = [len(row) for row in rows if row]
    width, even = Counter(widths).most_common(1)[0] if widths else (1, 0)
    return (even / len(widths), width) if width > 1 else (0.0, 0)
