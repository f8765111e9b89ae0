"""How many cells of tables end in a row of a chunk, with their true head in their column.

Tables are generated from a seed and rendered to PDF, XLSX and HTML: with heads of one and two levels, currency signs in
columns of their own, sections, footnotes and page turns. A cell counts if a chunk has its label and its value in one
row, and the row with the joined heads, such as `2022 / Revenue`, is that chunk's header row. White space and the sign
between levels do not matter. `rows` counts without the chunker: the cells of the Markdown whose table has that header.

    python -m benchmarks.tables
"""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from benchmarks.machine import heading
from benchmarks.rendered_tables import SourceTable, data_cells, generate_tables, render_html, render_pdf, render_xlsx
from rag_core.parsing.document import parse
from rag_core.settings import load_settings
from rag_core.wiring.chunking import build_chunker

_RENDERERS: Mapping[str, Callable[[SourceTable], bytes]] = {
    "pdf": render_pdf,
    "xlsx": render_xlsx,
    "html": render_html,
}
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=28)
    parser.add_argument("--poor", action="store_true", help="list the tables of which a chunk lacks a cell")
    arguments = parser.parse_args()
    chunker = build_chunker(load_settings(None, "default", (), {}))
    tables = generate_tables(arguments.seed, arguments.count)
    print(heading())
    print("format  cells   rows  chunks")
    for name, render in _RENDERERS.items():
        cells = in_rows = in_chunks = 0
        for number, table in enumerate(tables):
            document = parse(f"file:///table.{name}", render(table), detect_language=False, file_mb=1, text_mb=1)
            expected = expected_cells(table)
            chunks = chunker.split(UUID(int=0), document)
            by_chunk = {cell for chunk in chunks for cell in read_cells(f"{chunk.prefix}\n{chunk.text}")}
            cells, in_rows = cells + len(expected), in_rows + len(expected & set(read_cells(document.text)))
            in_chunks += len(expected & by_chunk)
            if arguments.poor and expected - by_chunk:
                print(f"{name} {number}: {len(expected - by_chunk)} of {len(expected)}")
        print(f"{name:6}{cells:7}{in_rows / cells:7.3f}{in_chunks / cells:8.3f}")


def expected_cells(table: SourceTable) -> set[tuple[str, str, str]]:
    return {_normalize(cell) for cell in data_cells(table)}


def read_cells(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields (label, head, value) of the cells of all tables in the text, normalized."""
    header: Sequence[str] = ()
    for line in text.split("\n"):
        if not line.startswith("|"):
            header = ()
        elif not header:
            header = _split_row(line)
        elif not _RULE.fullmatch(line):
            row = _split_row(line)
            yield from (_normalize((row[0], head, cell)) for head, cell in zip(header[1:], row[1:], strict=False))


def _split_row(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL.split(line.strip().strip("|"))]


def _normalize(cell: tuple[str, str, str]) -> tuple[str, str, str]:
    label, head, value = ("".join(re.sub(r"[\\/]", "", text).split()) for text in cell)
    return label, head, value


if __name__ == "__main__":
    main()
