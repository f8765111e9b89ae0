"""Chunkers compared with the boundaries of joined texts."""

import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from commands import rag_in_process

from rag_core.evaluation.boundaries import BoundaryScores
from rag_core.evaluation.joined_texts import SPACE, join_texts, measure_boundaries
from rag_core.types import Chunk, Document

TEXTS = ["One text.", " ", "Another text.", "Third.", "Fourth.", "left over"]


class ParagraphChunker:
    """Begins a chunk at every paragraph but the last."""

    def split(self, document_id: UUID, document: Document) -> list[Chunk]:
        chunks, start = [], 0
        for n, part in enumerate(document.text.split(SPACE)[:-1]):
            chunks.append(
                Chunk(id=uuid4(), document_id=document_id, ordinal=n, text=part, start=start, end=start + len(part))
            )
            start += len(part) + len(SPACE)
        return chunks


def test_texts_are_joined_with_the_starts_of_all_but_the_first() -> None:
    first, second = join_texts(TEXTS, documents=5, texts_a_document=2)
    assert first.document.text == "One text.\n\nAnother text."
    assert (first.boundaries, second.boundaries) == ([11], [8])


def test_a_chunker_that_misses_one_of_two_boundaries_has_half_of_the_recall() -> None:
    measured = measure_boundaries(ParagraphChunker(), list(join_texts(TEXTS, 1, 3)), tolerance=0)
    assert measured.scores == BoundaryScores(1.0, 0.5, pytest.approx(2 / 3))
    assert (measured.predicted, measured.evenly.f1) == (1, 0)


def test_the_command_measures_the_chunker_of_the_profile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rag = rag_in_process(capfd)
    monkeypatch.setenv("RAG_EMBEDDING__TYPE", "hashing")
    rows = [{"_id": f"{n}", "text": f"# Part {n}\n\n" + f"Sentence {n} of this part. " * 20} for n in range(4)]
    (tmp_path / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    settings = ("--set", "chunking={type: sentences, tokens: 60, overlap: 20}")
    measured = rag("dataset", "boundaries", tmp_path, "--texts", 2, *settings, "--json").json
    assert (measured["documents"], measured["boundaries"], measured["chunker"]) == (2, 1, "sentences")
    assert 0 <= measured["precision"] <= measured["recall"] <= 1
    assert rag("dataset", "boundaries", tmp_path, "--texts", 5).code == 2
