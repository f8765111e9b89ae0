from functools import cache
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.ingestion.chunking.sections import SectionsChunker
from rag_core.ingestion.embedding.model_files import model_folder
from rag_core.ingestion.embedding.tokens import ModelTokenizer, WordTokenizer
from rag_core.types import Chunk, Document, Section

DOCUMENT = UUID("00000000-0000-0000-0000-000000000001")
TOKENS, OVERLAP, PREFIX, SPECIAL = 24, 8, 12, 2

word = st.sampled_from(
    [
        "keys",
        "Rotate",
        "weekly,",
        "e.g.",
        "naïve",
        "café",
        "👩\u200d👩\u200d👧",
        "🎉",
        "東京都",
        "x́̂",
        "ﷺ",
        "antidisestablishment",
    ]
)
long_word = st.integers(30, 400).map(lambda size: "acgt" * size)
sentence = st.lists(word | word | word | long_word, min_size=1, max_size=60).map(" ".join)
prose = st.tuples(sentence, st.sampled_from([". ", "! ", "。", "?\n", "\n\n", " "])).map("".join)
table = st.integers(1, 12).map(lambda rows: "\n| key | value |\n|---|---|\n" + "| 1 | two. Three |\n" * rows + "\n")
code = st.just("\n```py\nx = 1\n\n# no heading\n```\n")
block = st.one_of(prose, prose, prose, table, code, st.text(max_size=40).map(lambda text: text.replace("\r", "")))
heading = st.sampled_from(["Keys", "Rotation of the keys", "", "東京", "A very long heading that says a lot " * 3])
section = st.tuples(st.integers(1, 3), heading, st.lists(block, max_size=6))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    text, sections, path = "".join(draw(st.lists(block, max_size=3))), [], {}
    for level, name, blocks in draw(st.lists(section, max_size=6)):
        text = text.rstrip("\n") + "\n" if text else ""
        path = {at: above for at, above in path.items() if at < level} | {level: name.strip()}
        sections.append(Section(path=tuple(path.values()), start=len(text)))
        text += f"{'#' * level} {name.strip()}\n" + "".join(blocks)
    return Document(uri="x", text=text, title=draw(heading), sections=tuple(sections))


@cache
def minilm() -> ModelTokenizer:
    return ModelTokenizer(model_folder("all-MiniLM-L6-v2"))


def holds(tokenizer: ModelTokenizer | WordTokenizer, document: Document) -> None:
    chunks = SectionsChunker(tokenizer, TOKENS, OVERLAP, PREFIX).split(DOCUMENT, document)
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    for chunk in chunks:
        assert chunk.text == document.text[chunk.start : chunk.end] == chunk.text.strip()
    assert uncovered(document.text, chunks) == ""
    assert max(tokenizer.lengths([chunk.text for chunk in chunks]), default=0) <= TOKENS
    assert max(tokenizer.lengths([chunk.prefix for chunk in chunks]), default=0) <= PREFIX
    embedded = tokenizer.lengths([chunk.embedded_text for chunk in chunks])
    assert max(embedded, default=0) + SPECIAL <= TOKENS + PREFIX + SPECIAL


def uncovered(text: str, chunks: tuple[Chunk, ...]) -> str:
    covered = [False] * len(text)
    for chunk in chunks:
        covered[chunk.start : chunk.end] = [True] * (chunk.end - chunk.start)
    return "".join(letter for letter, is_covered in zip(text, covered, strict=True) if not is_covered).strip()


@settings(max_examples=150, deadline=None)
@given(documents())
def test_any_document_is_covered_by_chunks_that_fit_by_words(document: Document) -> None:
    holds(WordTokenizer(), document)


@pytest.mark.model
@settings(max_examples=150, deadline=None)
@given(documents())
def test_any_document_is_covered_by_chunks_that_fit_minilm(document: Document) -> None:
    holds(minilm(), document)
