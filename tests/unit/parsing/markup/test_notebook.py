import json
from typing import Any

import pytest

from rag_core.errors import DocumentError
from rag_core.parsing.detection import detect_format
from rag_core.parsing.markup.notebook import NotebookParser
from rag_core.types import Document


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": outputs}


def display_output(**data: object) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {key.replace("_", "/"): value for key, value in data.items()}}


def parse(*cells: dict[str, Any], **metadata: object) -> Document:
    body = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return NotebookParser().parse("file:///a.ipynb", json.dumps(body).encode())


def test_cells_become_sections_paragraphs_and_code() -> None:
    document = parse(
        {"cell_type": "markdown", "source": ["# Tides\n", "\n", "Open <b>at</b> nine."]},
        code("x = 1\nprint(x)\n", {"output_type": "stream", "name": "stdout", "text": ["1\n"]}),
        {"cell_type": "markdown", "source": "## Result\n![tide](attachment:a.png)"},
        language_info={"name": "julia"},
        authors=[{"name": "Ann"}],
    )
    assert document.text == (
        "# Tides\n\nOpen at nine.\n\n```julia\nx = 1\nprint(x)\n```\n\n```\n1\n```\n\n## Result\ntide\n"
    )
    assert [section.path for section in document.sections] == [("Tides",), ("Tides", "Result")]
    assert (document.title, document.metadata) == ("Tides", {"authors": ["Ann"]})


def test_cells_of_version_3_are_in_worksheets() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Tides"]},
        {"cell_type": "code", "language": "r", "input": "x", "outputs": [{"output_type": "pyout", "text": "7"}]},
    ]
    body = json.dumps({"metadata": {"name": "a"}, "nbformat": 3, "worksheets": [{"cells": cells}]})
    text = NotebookParser().parse("file:///a.ipynb", body.encode()).text
    assert text == "## Tides\n\n```r\nx\n```\n\n```\n7\n```\n"


def test_the_table_or_else_the_text_of_an_output_is_kept_but_no_picture() -> None:
    table = "<style>a</style><table><tr><th>gate</th><th>open</th></tr><tr><td>1</td><td>yes</td></tr></table>"
    document = parse(
        code(
            "x",
            display_output(text_html=table, text_plain="  gate open\n0 1 yes"),
            display_output(image_png="iVBORw0KGgo=", text_plain="<Figure size 640x480 with 1 Axes>"),
            {"output_type": "stream", "text": "10%\r100%\n\x1b[31mdone\x1b[0m"},
            {"output_type": "error", "ename": "KeyError", "evalue": "'gate'", "traceback": ["\x1b[0;31m"]},
        )
    )
    assert document.text == (
        "```python\nx\n```\n\n| gate | open |\n| --- | --- |\n| 1 | yes |\n\n"
        "```\n100%\ndone\n```\n\n```\nKeyError: 'gate'\n```\n"
    )


def test_long_outputs_are_cut_after_a_line_and_flagged() -> None:
    document = parse(code("x", {"output_type": "stream", "text": "nine letters\n" * 1000}))
    assert (len(document.text), document.metadata["flags"]) == (2014, ["outputs-shortened"])
    assert "flags" not in parse(code("x", {"output_type": "stream", "text": "short"})).metadata


def test_code_with_fences_has_longer_ones() -> None:
    assert parse(code('"""\n```\nx\n```\n"""')).text == '````python\n"""\n```\nx\n```\n"""\n````\n'


@pytest.mark.parametrize("body", [b"words", b"[" * 100_000])
def test_a_file_that_is_not_json_fails_by_name(body: bytes) -> None:
    with pytest.raises(DocumentError, match="damaged notebook: ") as failed:
        NotebookParser().parse("file:///a.ipynb", body)
    assert failed.value.status == "failed"


@pytest.mark.parametrize("cells", [None, 3, [None, {"cell_type": 3, "source": {"a": 1}}], {"a": 1}])
def test_cells_of_a_wrong_shape_are_left_out(cells: object) -> None:
    body = {"cells": cells, "metadata": [], "nbformat": 4}
    assert NotebookParser().parse("file:///a.ipynb", json.dumps(body).encode()).text.strip() == ""


def test_a_notebook_is_detected_with_any_suffix() -> None:
    body = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1).encode()
    assert [detect_format(uri, body) for uri in ("a.ipynb", "a.txt", "a")] == ["notebook"] * 3
