"""The commands of the documents run as they stand there, and print what the documents show."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Rag, rag_in_process
from documents import ROOT, Reader
from hosts import free_port

from rag_core.storage import embedded

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow]

DOCS = ROOT / "docs"


@pytest.fixture
def rag(capfd: pytest.CaptureFixture[str]) -> Rag:
    return rag_in_process(capfd)


@pytest.fixture
def home(short_folder: Path) -> Iterator[Path]:
    """A RAG_HOME whose embedded server is stopped in the end."""
    folder = short_folder / "reader"
    yield folder
    embedded.stop(folder / "postgres")


@pytest.mark.ray
def test_the_tutorial_leads_to_a_served_answer(tmp_path: Path, home: Path, rag: Rag) -> None:
    reader = Reader(tmp_path, {"RAG_HOME": str(home)}, {"8000": str(free_port())}, rag)
    reader.follow((DOCS / "tutorial.md").read_text())
