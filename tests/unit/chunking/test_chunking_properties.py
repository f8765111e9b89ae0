from collections.abc import Callable
from functools import cache
from itertools import pairwise
from uuid import UUID

import pytest
from example_counts import scale_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.chunking.clinical import ClinicalChunker
from rag_core.chunking.fixed import FixedChunker
from rag_core.chunking.positions import PagedChunker
from rag_core.chunking.sections import SectionsChunker
from rag_core.chunking.semantic import SemanticChunker
from rag_core.chunking.sentences import SentencesChunker
from rag_core.chunking.tables import table_rows
from rag_core.models.encoders.hashing import HashingEncoder
from rag_core.models.encoders.model_files import find_model_folder
from rag_core.models.encoders.tokens import ModelTokenizer, WordTokenizer
from rag_core.protocols import Chunker
from rag_core.types import Chunk, Document, Section

DOCUMENT = UUID("00000000-0000-0000-0000-000000000001")
TOKENS, OVERLAP, PREFIX, SPECIAL = 24, 8, 12, 2
CHARS = 60

Tokens = ModelTokenizer | WordTokenizer
CHUNKERS: dict[str, Callable[[Tokens], Chunker]] = {
    "sections": lambda tokens: SectionsChunker(tokens, TOKENS, OVERLAP, PREFIX),
    "sentences": lambda tokens: SentencesChunker(tokens, TOKENS, OVERLAP, PREFIX),
    "clinical": lambda tokens: ClinicalChunker(tokens, TOKENS, OVERLAP, PREFIX),
    "semantic": lambda tokens: SemanticChunker(tokens, TOKENS, PREFIX, lambda: HashingEncoder(16)),
    "fixed": lambda tokens: FixedChunker(tokens, "tokens", TOKENS, OVERLAP, PREFIX, TOKENS),
    "fixed without overlap": lambda tokens: FixedChunker(tokens, "tokens", TOKENS, 0, PREFIX, TOKENS),
    "chars": lambda tokens: FixedChunker(tokens, "chars", CHARS, 20, PREFIX, TOKENS),
    "paged": lambda tokens: PagedChunker(SectionsChunker(tokens, TOKENS, OVERLAP, PREFIX)),
}

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
heading = st.sampled_from(
    [
        "Keys",
        "Inclusion Criteria",
        "Warnings",
        "Rotation of the keys",
        "",
        "東京",
        "A very long heading that says a lot " * 3,
    ]
)
section = st.tuples(st.integers(1, 3), heading, st.lists(block, max_size=6))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    text, sections, path = "".join(draw(st.lists(block, max_size=3))), [], {}
    for level, name, blocks in draw(st.lists(section, max_size=6)):
        text = text.rstrip("\n") + "\n" if text else ""
        path = {at: above for at, above in path.items() if at < level} | {level: name.strip()}
        sections.append(Section(path=tuple(path.values()), start=len(text)))
        text += f"{'#' * level} {name.strip()}\n" + "".join(blocks)
    pages = sorted({0, *draw(st.lists(st.integers(0, max(len(text) - 1, 0)), max_size=4))})
    return Document(uri="x", text=text, title=draw(heading), sections=tuple(sections), pages=tuple(pages))


@cache
def minilm() -> ModelTokenizer:
    return ModelTokenizer(find_model_folder("all-MiniLM-L6-v2"))


def holds(name: str, tokenizer: Tokens, document: Document) -> None:
    chunks = CHUNKERS[name](tokenizer).split(DOCUMENT, document)
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    for chunk in chunks:
        assert chunk.text == document.text[chunk.start : chunk.end] == chunk.text.strip()
    assert text_outside(document.text, chunks) == ""
    assert max(tokenizer.lengths([chunk.text for chunk in chunks]), default=0) <= TOKENS
    assert max(tokenizer.lengths([chunk.prefix for chunk in chunks]), default=0) <= PREFIX
    embedded = tokenizer.lengths([chunk.embedded_text for chunk in chunks])
    assert max(embedded, default=0) + SPECIAL <= TOKENS + PREFIX + SPECIAL
    assert [chunk.start for chunk in chunks] == sorted({chunk.start for chunk in chunks})
    assert all(before.end < after.end for before, after in pairwise(chunks))
    if name == "chars":
        assert max((len(chunk.text) for chunk in chunks), default=0) <= CHARS
    for row in table_rows(document.text):
        holding = [chunk for chunk in chunks if chunk.start < row.end and row.start < chunk.end]
        fits = len(tokenizer.ends(document.text[row.start : row.end])) <= TOKENS and row.end - row.start <= CHARS
        assert not fits or all(chunk.start <= row.start and row.end <= chunk.end for chunk in holding)


def text_outside(text: str, chunks: tuple[Chunk, ...]) -> str:
    covered = [False] * len(text)
    for chunk in chunks:
        covered[chunk.start : chunk.end] = [True] * (chunk.end - chunk.start)
    return "".join(letter for letter, is_covered in zip(text, covered, strict=True) if not is_covered).strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", CHUNKERS)
@settings(max_examples=scale_examples(100), deadline=None)
@given(document=documents())
def test_any_document_is_covered_by_chunks_that_fit_by_words(name: str, document: Document) -> None:
    holds(name, WordTokenizer(), document)


@pytest.mark.model
@pytest.mark.parametrize("name", CHUNKERS)
@settings(max_examples=scale_examples(100), deadline=None)
@given(document=documents())
def test_any_document_is_covered_by_chunks_that_fit_minilm(name: str, document: Document) -> None:
    holds(name, minilm(), document)
