"""The builder of chunkers. It checks that chunks fit the window of the embedding model."""

from functools import partial
from typing import assert_never

from rag_core.chunking.by_profile import ProfileChunker
from rag_core.chunking.checked import CheckedChunker
from rag_core.chunking.clinical import ClinicalChunker as Clinical
from rag_core.chunking.fixed import FixedChunker as Fixed
from rag_core.chunking.given import GivenChunker
from rag_core.chunking.positions import PagedChunker
from rag_core.chunking.sections import SectionsChunker as Sections
from rag_core.chunking.semantic import SemanticChunker as Semantic
from rag_core.chunking.sentences import SentencesChunker as Sentences
from rag_core.chunking.window import MIN_CHUNK_TOKENS, check_window
from rag_core.config import (
    ChunkingSettings,
    ClinicalChunker,
    EmbeddingSettings,
    FixedChunker,
    PythonObject,
    SectionsChunker,
    SemanticChunker,
    SentencesChunker,
    Settings,
)
from rag_core.detection import detect_document_profile
from rag_core.errors import ConfigError
from rag_core.protocols import Chunker
from rag_core.wiring.embedding import EncoderTokenizer, build_encoder, build_tokenizer, document_prompt, embedding_space
from rag_core.wiring.python_objects import build_python_object


def without_overlap(settings: Settings) -> Settings:
    """The settings with chunks that begin where the chunk before them ends."""
    section = settings.chunking
    if "overlap" not in type(section).model_fields:
        return settings
    return settings.model_copy(update={"chunking": section.model_copy(update={"overlap": 0})})


def build_chunker(settings: Settings) -> Chunker:
    """Raises ConfigError if chunks could exceed the embedder's window, because it would cut them silently."""
    chunker = PagedChunker(_build_unpaged_chunker(settings))
    if not settings.document_profiles:
        return chunker
    by_profile = {
        name: PagedChunker(_build_profile_chunker(name, profile.chunking, settings))
        for name, profile in settings.document_profiles.items()
        if profile.chunking
    }
    return ProfileChunker(chunker, by_profile, partial(detect_document_profile, profiles=settings.detect_patterns))


def build_given_chunker(settings: Settings) -> GivenChunker:
    """The chunker of `build_chunker` for documents that bring no chunks. Raises its errors."""
    embedding = settings.embedding
    tokenizer, window = build_tokenizer(embedding), embedding_space(embedding).window
    max_tokens = window - _count_special_tokens(tokenizer, embedding)
    return GivenChunker(build_chunker(settings), tokenizer, max_tokens)


def max_chunk_tokens(embedding: EmbeddingSettings) -> int:
    """The length of the largest chunk that fits the embedder's window with a prefix of the default length."""
    tokenizer, window = build_tokenizer(embedding), embedding_space(embedding).window
    return window - _count_special_tokens(tokenizer, embedding) - SectionsChunker(type="sections").prefix_tokens


def _build_profile_chunker(profile: str, chunking: ChunkingSettings, settings: Settings) -> Chunker:
    try:
        return _build_unpaged_chunker(settings.model_copy(update={"chunking": chunking}))
    except ConfigError as error:
        raise ConfigError(f"profile {profile}, which is detected for single documents: {error}") from error


def _build_unpaged_chunker(settings: Settings) -> Chunker:
    embedding = settings.embedding
    match settings.chunking:
        case SectionsChunker() as section:
            tokenizer = _build_checked_tokenizer(section, embedding)
            return Sections(tokenizer, section.tokens, section.overlap, section.prefix_tokens)
        case SentencesChunker() as section:
            tokenizer = _build_checked_tokenizer(section, embedding)
            return Sentences(tokenizer, section.tokens, section.overlap, section.prefix_tokens)
        case ClinicalChunker() as section:
            tokenizer = _build_checked_tokenizer(section, embedding)
            return Clinical(tokenizer, section.tokens, section.overlap, section.prefix_tokens)
        case SemanticChunker() as section:
            tokenizer = _build_checked_tokenizer(section, embedding)
            return Semantic(tokenizer, section.tokens, section.prefix_tokens, partial(build_encoder, embedding))
        case FixedChunker() as section:
            return _build_fixed_chunker(section, embedding)
        case PythonObject() as section:
            return CheckedChunker(build_python_object(section, "chunking", "split"), section.object)
        case _:
            assert_never(settings.chunking)


def _build_checked_tokenizer(
    section: SectionsChunker | SentencesChunker | ClinicalChunker | SemanticChunker, embedding: EmbeddingSettings
) -> EncoderTokenizer:
    """The embedder's tokenizer, after the check that chunks of this section fit the window."""
    tokenizer, window = build_tokenizer(embedding), embedding_space(embedding).window
    check_window(section.tokens, section.prefix_tokens, _count_special_tokens(tokenizer, embedding), window)
    return tokenizer


def _build_fixed_chunker(section: FixedChunker, embedding: EmbeddingSettings) -> Fixed:
    tokenizer, window = build_tokenizer(embedding), embedding_space(embedding).window
    special_tokens = _count_special_tokens(tokenizer, embedding)
    min_tokens = section.size if section.unit == "tokens" else MIN_CHUNK_TOKENS
    check_window(min_tokens, section.prefix_tokens, special_tokens, window, "chunking.size")
    max_tokens = window - special_tokens - section.prefix_tokens
    return Fixed(tokenizer, section.unit, section.size, section.overlap, section.prefix_tokens, max_tokens)


def _count_special_tokens(tokenizer: EncoderTokenizer, embedding: EmbeddingSettings) -> int:
    """The tokens that the model reads in addition to a chunk and its prefix."""
    (prompt,) = tokenizer.lengths([document_prompt(embedding)])
    return tokenizer.special_tokens + prompt
