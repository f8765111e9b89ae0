"""Chunkers, checked against the window of the model that will read their chunks."""

from functools import partial
from typing import assert_never

from rag_core.chunking.clinical import ClinicalChunker as Clinical
from rag_core.chunking.fixed import FixedChunker as Fixed
from rag_core.chunking.positions import PagedChunker
from rag_core.chunking.sections import SectionsChunker as Sections
from rag_core.chunking.semantic import SemanticChunker as Semantic
from rag_core.chunking.unsectioned import SentencesChunker as Sentences
from rag_core.chunking.window import FEWEST_TOKENS, check_window
from rag_core.config import (
    ClinicalChunker,
    EmbeddingSettings,
    FixedChunker,
    PythonObject,
    SectionsChunker,
    SemanticChunker,
    SentencesChunker,
    Settings,
)
from rag_core.protocols import Chunker
from rag_core.wiring.embedding import SpecialTokenizer, document_prompt, embedding_space, encoder, tokenizer
from rag_core.wiring.python import python_object


def chunker(settings: Settings) -> Chunker:
    """ConfigError if its chunks would not fit the embedder's window: they would be cut silently."""
    return PagedChunker(_chunker(settings))


def _chunker(settings: Settings) -> Chunker:
    embedding = settings.embedding
    match settings.chunking:
        case SectionsChunker() as chosen:
            return Sections(_tokenizer(chosen, embedding), chosen.tokens, chosen.overlap, chosen.prefix_tokens)
        case SentencesChunker() as chosen:
            return Sentences(_tokenizer(chosen, embedding), chosen.tokens, chosen.overlap, chosen.prefix_tokens)
        case ClinicalChunker() as chosen:
            return Clinical(_tokenizer(chosen, embedding), chosen.tokens, chosen.overlap, chosen.prefix_tokens)
        case SemanticChunker() as chosen:
            tokens = _tokenizer(chosen, embedding)
            return Semantic(tokens, chosen.tokens, chosen.prefix_tokens, partial(encoder, embedding))
        case FixedChunker() as chosen:
            return _fixed(chosen, embedding)
        case PythonObject() as chosen:
            own: Chunker = python_object(chosen)
            return own
        case _:
            assert_never(settings.chunking)


def _tokenizer(
    chosen: SectionsChunker | SentencesChunker | ClinicalChunker | SemanticChunker, embedding: EmbeddingSettings
) -> SpecialTokenizer:
    tokens = tokenizer(embedding)
    check_window(chosen.tokens, chosen.prefix_tokens, _special(tokens, embedding), embedding_space(embedding).window)
    return tokens


def _fixed(chosen: FixedChunker, embedding: EmbeddingSettings) -> Fixed:
    tokens, window = tokenizer(embedding), embedding_space(embedding).window
    special = _special(tokens, embedding)
    least = chosen.size if chosen.unit == "tokens" else FEWEST_TOKENS
    check_window(least, chosen.prefix_tokens, special, window, "chunking.size")
    room = window - special - chosen.prefix_tokens
    return Fixed(tokens, chosen.unit, chosen.size, chosen.overlap, chosen.prefix_tokens, room)


def _special(tokens: SpecialTokenizer, embedding: EmbeddingSettings) -> int:
    """The tokens that the model gets beside a chunk and its prefix."""
    (prompt,) = tokens.lengths([document_prompt(embedding)])
    return tokens.special_tokens + prompt
