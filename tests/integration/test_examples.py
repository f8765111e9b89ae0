"""Each script of `examples` runs as its docstring shows."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import ROOT, Reader

from rag_core.storage import embedded

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

PRINTED = {
    "flow_of_nodes": ": Below 5 degrees water temperature a dive lasts no more than 25 minutes.",
    "show_citations": "words: Below 5 degrees water temperature a dive lasts no more than 25 minutes.",
    "nightly_sync": "handbook: 51 listed, 51 added, 49 completed, 2 skipped",
    "compare_settings": "retrieval.type=dense     MRR@10 0.",
    "seed_data": "36 documents are in hyperkb; experiments/sample has 37 documents and 10 questions",
    "load_config_and_run": "| index_build_seconds |",
}
AFTER = {"load_config_and_run": "seed_data"}
"""The examples that require another one before them."""


@pytest.fixture(scope="module")
def reader(short_folder: Path) -> Iterator[Reader]:
    home, folder = short_folder / "examples", short_folder / "checkout"
    folder.mkdir()
    for name in ("demo", "examples"):
        (folder / name).symlink_to(ROOT / name)
    yield Reader(folder, {"RAG_HOME": str(home), "PYTHONPATH": str(ROOT)})
    embedded.stop(home / "postgres")


def example_command(name: str) -> str:
    docstring = ast.get_docstring(ast.parse((ROOT / "examples" / f"{name}.py").read_text())) or ""
    (line,) = (line for line in docstring.splitlines() if line.startswith("Example: "))
    return line.removeprefix("Example: ")


def test_every_example_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*PRINTED}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_as_its_docstring_shows(name: str, reader: Reader) -> None:
    if name in AFTER:
        reader.run(example_command(AFTER[name]))
    assert PRINTED[name] in reader.run(example_command(name))


def test_a_failed_document_or_source_ends_the_nightly_sync_with_its_exit_code(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing")
    assert "broken.pdf: parse: " in reader.run(f"python examples/nightly_sync.py broken {tmp_path}", must_fail=True)
    assert "was not synced" in reader.run("python examples/nightly_sync.py broken /nowhere", must_fail=True)
