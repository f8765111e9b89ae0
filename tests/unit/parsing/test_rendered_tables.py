"""Tables whose heads are known, rendered to each format: benchmarks.tables measures more of them."""

from collections.abc import Callable

import pytest

from benchmarks.rendered_tables import SourceTable, generate_tables, render_html, render_pdf, render_xlsx
from benchmarks.tables import expected_cells, read_cells
from rag_core.parsing.document import parse


@pytest.mark.parametrize(("suffix", "render"), [("pdf", render_pdf), ("xlsx", render_xlsx), ("html", render_html)])
def test_nearly_all_cells_have_their_true_head(suffix: str, render: Callable[[SourceTable], bytes]) -> None:
    matched = total = 0
    for table in generate_tables(seed=7, count=8):
        document = parse(f"file:///a.{suffix}", render(table), detect_language=False, file_mb=1, text_mb=1)
        expected = expected_cells(table)
        matched, total = matched + len(expected & set(read_cells(document.text))), total + len(expected)
    assert matched >= 0.97 * total
