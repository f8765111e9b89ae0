"""The commands of the documents run unchanged, and print what the documents show."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import run_s3
from commands import Rag, rag_in_process
from documents import ROOT, Reader
from fakes.openai_endpoint import run_endpoint, stream_response, whole_response

from benchmarks.free_port import find_free_port
from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres

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


@pytest.fixture
def reader(tmp_path: Path, store: Postgres, rag: Rag) -> Reader:
    """A reader with an empty folder and an empty store."""
    return Reader(tmp_path, {"RAG_STORE__URL": store.dsn}, rag=rag)


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


@pytest.mark.ray
def test_the_tutorial_leads_to_a_served_answer(tmp_path: Path, home: Path, rag: Rag) -> None:
    reader = Reader(tmp_path, {"RAG_HOME": str(home)}, {"8000": str(find_free_port())}, rag)
    reader.follow(page("tutorial"))


def test_an_endpoint_writes_the_answers(reader: Reader) -> None:
    answer = stream_response("Signing keys are ", "rotated every 90 days. [1]")
    with run_endpoint(whole_response("ok"), answer) as endpoint:
        reader.replaced = {"http://localhost:11434/v1": endpoint.url}
        reader.follow(page("how-to/endpoint"))
    assert len(endpoint.requests) == 2
    assert {request.headers["authorization"] for request in endpoint.requests} == {"Bearer not-a-real-key"}


def test_a_conversation_asks_back(reader: Reader) -> None:
    reader.follow(page("how-to/conversation"))


def test_a_bucket_is_kept_in_step(reader: Reader, tmp_path: Path) -> None:
    with run_s3(tmp_path / "s3.log") as url:
        reader.replaced = {"http://minio.internal:9000": url}
        reader.follow(page("how-to/s3"))


def test_documents_of_groups_are_found_by_their_members(reader: Reader) -> None:
    reader.follow(page("how-to/document-access"))


def test_own_objects_chunk_embed_retrieve_and_write(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands append the reader's folder
    reader.follow(page("how-to/extend"))


def test_the_stages_are_called_as_functions(reader: Reader) -> None:
    reader.follow(page("how-to/functions"))


def test_views_of_notebooks_are_for_own_documents(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "demo").symlink_to(DOCS.parent / "demo")
    reader.follow(page("how-to/notebooks"))
    assert (tmp_path / "movement.png").read_bytes().startswith(b"\x89PNG")


def test_a_configuration_of_another_shape_is_imported(reader: Reader) -> None:
    reader.follow(page("how-to/import"))


def test_chunks_of_another_program_are_stored(reader: Reader) -> None:
    reader.follow(page("how-to/given-chunks"))


def test_nodes_index_and_answer(reader: Reader) -> None:
    reader.follow(page("how-to/nodes"))


def test_profiles_are_detected_and_stages_skipped(reader: Reader) -> None:
    reader.follow(page("how-to/profiles"))


def test_the_settings_for_openid_providers_are_valid(reader: Reader) -> None:
    reader.follow(page("how-to/openid"))
