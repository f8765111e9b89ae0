"""The files of the notebooks hold no outputs, and nothing that differs from editor to editor."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools import notebooks
from tools.notebooks import METADATA, clear_notebook, list_notebooks, list_pictures

ROOT = Path(__file__).parents[2]
PATHS = list_notebooks()


def read_notebook(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_there_are_four_notebooks() -> None:
    assert [path.stem for path in PATHS] == ["1_ingest", "2_retrieve", "3_converse", "4_evaluate"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_file_is_valid_and_cleared(path: Path) -> None:
    notebook = read_notebook(path)
    nbformat.validate(notebook)
    assert notebook == clear_notebook(notebook), "run `python -m tools.notebooks --clear`"
    assert notebook.metadata == METADATA


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_cells_have_readable_ids_that_no_editor_made(path: Path) -> None:
    ids = [cell.id for cell in read_notebook(path).cells]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", id) for id in ids)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_story_explains_each_part_before_its_code(path: Path) -> None:
    cells = read_notebook(path).cells
    assert cells[0].source.startswith(f"# {path.stem[0]} · ")
    codes = [cell.cell_type == "code" for cell in cells]
    assert not any(all(three) for three in zip(codes, codes[1:], codes[2:], strict=False))
    assert all(cell.source.strip() for cell in cells)
    assert all(before.source != after.source for before, after in pairwise(cells))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_links_lead_to_files_that_exist(path: Path) -> None:
    sources = "\n".join(cell.source for cell in read_notebook(path).cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\(([^)#]+)", sources):
        assert (path.parent / link).is_file(), link


def test_clearing_removes_outputs_and_the_metadata_of_editors() -> None:
    notebook = nbformat.v4.new_notebook(metadata={**METADATA, "vscode": {"x": 1}})
    output = nbformat.v4.new_output("display_data", data={"image/png": "UE5H"})
    cell = nbformat.v4.new_code_cell("1 + 1", id="sum", outputs=[output], execution_count=3)
    cell.metadata["scrolled"] = True
    notebook.cells = [cell]
    cleared = clear_notebook(notebook)
    assert list_pictures(notebook) == [b"PNG"]
    assert list_pictures(cleared) == []
    assert cleared.metadata == METADATA
    assert cleared.cells[0] == {**nbformat.v4.new_code_cell("1 + 1", id="sum"), "metadata": {}}


def test_the_command_clears_the_file_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        cell = nbformat.v4.new_code_cell("1 + 1", id="sum", execution_count=3)
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / f"{name}.ipynb")
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["notebooks", "--clear", "one"])
    notebooks.main()
    counts = [read_notebook(tmp_path / f"{name}.ipynb").cells[0].execution_count for name in ("one", "two")]
    assert counts == [None, 3]
