from collections.abc import Sequence
from itertools import combinations
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.chunking.semantic import SemanticChunker
from rag_core.chunking.topic_boundaries import block_similarities, cheapest_cuts
from rag_core.errors import DocumentError, ModelError
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.protocols import DocumentEmbedder
from rag_core.types import Document, Matrix, Section

DOCUMENT = UUID("00000000-0000-0000-0000-000000000001")
SEA = ["The sea is deep today.", "Waves of the sea break.", "A ship is at sea."]
BREAD = ["Bread is baked at night.", "Flour makes bread rise well.", "Warm bread smells of home."]


class Topics:
    """An embedder with two directions: texts about bread, and others."""

    def __init__(self) -> None:
        self.calls: list[Sequence[str]] = []

    def embed(self, texts: Sequence[str]) -> Matrix:
        self.calls.append(texts)
        return np.array([[1, 0] if "read" in text else [0, 1] for text in texts], np.float32)


class Broken:
    def embed(self, texts: Sequence[str]) -> Matrix:  # noqa: ARG002 - as the role has it
        raise ModelError("no weights")


def split(document: Document, embedder: DocumentEmbedder, tokens: int = 24) -> list[str]:
    chunks = SemanticChunker(WordTokenizer(), tokens, 12, lambda: embedder).split(DOCUMENT, document)
    return [chunk.text for chunk in chunks]


def test_a_text_is_cut_where_its_subject_changes() -> None:
    text = " ".join([*SEA[:2], *BREAD])
    assert split(Document(uri="x", text=text), Topics()) == [" ".join(SEA[:2]), " ".join(BREAD)]


def test_a_text_that_fits_is_not_encoded() -> None:
    topics = Topics()
    assert split(Document(uri="x", text=" ".join(SEA)), topics) == [" ".join(SEA)]
    assert topics.calls == []


def test_only_sections_that_are_too_long_are_encoded_and_all_at_once() -> None:
    topics = Topics()
    texts = [" ".join(SEA), " ".join([*SEA, *BREAD]), " ".join([*BREAD, *SEA])]
    starts = [0, len(texts[0]) + 1, len(texts[0]) + len(texts[1]) + 2]
    sections = tuple(Section(path=(f"S{i}",), start=start) for i, start in enumerate(starts))
    chunks = split(Document(uri="x", text=" ".join(texts), sections=sections), topics)
    assert chunks == [" ".join(SEA), " ".join(SEA), " ".join(BREAD), " ".join(BREAD), " ".join(SEA)]
    assert [len(call) for call in topics.calls] == [12]


def test_a_model_that_fails_fails_the_document_for_the_moment() -> None:
    with pytest.raises(DocumentError, match="the embedding model fails: no weights") as raised:
        split(Document(uri="x", text=" ".join(SEA * 9)), Broken())
    assert (raised.value.stage, raised.value.retryable) == ("split", True)


def test_sentences_are_compared_with_up_to_three_on_either_side() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    assert block_similarities(vectors).tolist() == pytest.approx([0, 1 / 5**0.5, 0, 1 / 5**0.5])


def cost(runs: list[tuple[int, int]], costs: Sequence[float]) -> float:
    return sum(costs[start] for start, _ in runs if start)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), max_size=9))
def test_no_other_cuts_are_cheaper(sentences: list[tuple[int, float]]) -> None:
    lengths, costs = [length for length, _ in sentences], [price for _, price in sentences]
    runs = cheapest_cuts(lengths, costs, 9)
    assert [at for run in runs for at in range(*run)] == list(range(len(sentences)))
    assert all(sum(lengths[slice(*run)]) <= 9 for run in runs)
    others = [
        list(zip((0, *cuts), (*cuts, len(sentences)), strict=True))
        for n in range(len(sentences))
        for cuts in combinations(range(1, len(sentences)), n)
    ]
    fitting = [runs for runs in others if all(sum(lengths[slice(*run)]) <= 9 for run in runs)]
    assert not sentences or cost(runs, costs) <= min(cost(other, costs) for other in fitting) + 1e-9
