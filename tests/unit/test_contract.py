import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import stamina
from pdfs import pdf

from rag_core.contract import chunk_text, embed_chunks, index_document, indexing, parse_pdf, store_document
from rag_core.contract.indexing import is_transient
from rag_core.errors import ModelError
from rag_core.types import Matrix

SENTENCES = " ".join(f"Sentence number {i} says something about keys." for i in range(30))


class ScriptedEncoder:
    """Raises the scripted errors, one for each call; then returns unit vectors for every text but bad ones."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.batches: list[Sequence[str]] = []

    def embed(self, texts: Sequence[str]) -> Matrix:
        self.batches.append(texts)
        if self.failures:
            raise self.failures.pop(0)
        if "bad" in texts:
            raise KeyError("bad")
        return np.tile(np.array([[0.6, 0.8]], np.float32), (len(texts), 1))


class RateLimitError(Exception):
    status_code = 429


class Response:
    status_code = 503


class HttpError(Exception):
    response = Response()


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_EMBEDDING__TYPE", "hashing")
    monkeypatch.setenv("RAG_EMBEDDING__WINDOW", "300")


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    with stamina.set_testing(True, attempts=4):
        yield


def embedder(monkeypatch: pytest.MonkeyPatch, *failures: Exception) -> ScriptedEncoder:
    scripted = ScriptedEncoder(*failures)
    monkeypatch.setattr(indexing, "load_shared_encoder", lambda _: scripted)
    return scripted


def test_a_pdf_becomes_text(tmp_path: Path) -> None:
    path = tmp_path / "keys.pdf"
    path.write_bytes(pdf(["Keys are rotated every week.", "Nobody is told."]))
    assert "Keys are rotated every week." in parse_pdf(path)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        parse_pdf(tmp_path / "none.pdf")


def test_a_file_that_is_not_a_pdf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.pdf"
    path.write_text("# Keys")
    with pytest.raises(ValueError, match=r"keys.pdf is not a PDF"):
        parse_pdf(str(path))


def test_a_damaged_pdf_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.pdf"
    path.write_bytes(b"%PDF-1.7\nnothing more")
    with pytest.raises(RuntimeError, match=r"keys.pdf cannot be read: "):
        parse_pdf(path)


def test_chunks_are_whole_sentences_of_at_most_their_size_in_characters() -> None:
    chunks = chunk_text(SENTENCES, chunk_size=200, overlap=60)
    assert all(len(chunk) <= 200 and chunk.startswith("Sentence") and chunk.endswith("keys.") for chunk in chunks)
    assert all(after.startswith(before[before.rindex("Sentence") :]) for before, after in pairwise(chunks))


def test_chunks_do_not_mix_sections() -> None:
    text = f"# One\n{SENTENCES[:300]}\n# Two\n{SENTENCES[:300]}"
    assert [chunk.split()[1] for chunk in chunk_text(text, 400, 0)] == ["One", "Two"]


def test_no_text_gives_no_chunk() -> None:
    assert chunk_text(" \n") == []


@pytest.mark.parametrize(
    ("size", "overlap", "rule"),
    [
        (99, 0, "chunk_size must be >= 100, got 99"),
        (100, 100, r"overlap must be in \[0, chunk_size\), got 100 of 100"),
        (100, -1, r"overlap must be in \[0, chunk_size\), got -1 of 100"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(size: int, overlap: int, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        chunk_text("Text.", size, overlap)


def test_texts_come_back_with_their_vectors_in_batches_of_25(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted, texts = embedder(monkeypatch), [f"text {i}" for i in range(60)]
    pairs = embed_chunks(texts)
    assert [text for text, _ in pairs] == texts
    assert pairs[0][1] == pytest.approx([0.6, 0.8])
    assert [len(batch) for batch in scripted.batches] == [25, 25, 10]


def test_without_chunks_there_is_nothing_to_embed() -> None:
    with pytest.raises(ValueError, match="chunks must contain at least one text, got none"):
        embed_chunks([])


def test_a_chunk_that_fails_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    embedder(monkeypatch)
    with caplog.at_level(logging.WARNING, "rag_core.contract"):
        assert [text for text, _ in embed_chunks(["good", "bad", "fine"])] == ["good", "fine"]
    assert [record.getMessage() for record in caplog.records] == [
        "left out a chunk that cannot be embedded: 'bad': 'bad'"
    ]


def test_a_chunk_that_is_longer_than_the_model_reads_is_embedded_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "rag_core.contract"):
        assert len(embed_chunks(["word " * 301, "word"])) == 2
    [record] = caplog.records
    assert record.getMessage().startswith("only the first 300 of 301 tokens of a chunk are embedded: 'word word")


def test_a_model_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = embedder(monkeypatch, RateLimitError(), ConnectionError(), HttpError())
    assert [text for text, _ in embed_chunks(["one"])] == ["one"]
    assert len(scripted.batches) == 4


def test_a_model_that_stays_busy_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = embedder(monkeypatch, *[RateLimitError("too many")] * 9)
    with pytest.raises(RuntimeError, match="cannot be used: no answer after 4 attempts: too many"):
        embed_chunks(["one", "two"])
    assert len(scripted.batches) == 4


def test_a_model_that_is_not_there_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = embedder(monkeypatch, *[ModelError("no weights")] * 9)
    with pytest.raises(RuntimeError, match="cannot be used: no weights"):
        embed_chunks(["one", "two"])
    assert len(scripted.batches) == 1


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (RateLimitError(), True),
        (HttpError(), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (FileNotFoundError(), False),
        (ValueError(), False),
        (ModelError("gone"), False),
    ],
)
def test_only_a_failure_that_can_pass_by_itself_is_transient(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


ABOUT = {"filename": "keys.pdf", "file_path": "/nowhere/keys.pdf", "file_size": 10}


@pytest.mark.parametrize(
    ("name", "missing", "rule"),
    [
        ("", "", "name must be a word"),
        ("two words", "", "name must be a word .* got 'two words'"),
        ("x" * 64, "", "name must be a word"),
        ("good", "file_size", "metadata must have filename, file_path, file_size; missing: file_size"),
    ],
)
def test_a_bad_name_or_missing_metadata_is_refused_before_anything_is_stored(
    name: str, missing: str, rule: str
) -> None:
    metadata = {key: value for key, value in ABOUT.items() if key != missing}
    with pytest.raises(ValueError, match=rule):
        store_document(name, [("text", [1.0])], metadata)


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="options must be chunk_size or overlap, got size"):
        index_document("x", tmp_path / "none.pdf", {"size": 3})
