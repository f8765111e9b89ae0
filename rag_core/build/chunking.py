"""Chunkers, checked against the window of the model that will read their chunks."""

from typing import assert_never

from rag_core.build.embedding import document_prompt, embedding_space, tokenizer
from rag_core.build.python import python_object
from rag_core.config import PythonObject, SectionsChunker, Settings
from rag_core.ingestion.chunking.sections import SectionsChunker as Sections
from rag_core.ingestion.chunking.window import check_window
from rag_core.protocols import Chunker


def chunker(settings: Settings) -> Chunker:
    """ConfigError if its chunks would not fit the embedder's window: they would be cut silently."""
    match settings.chunking:
        case SectionsChunker() as chosen:
            tokens = tokenizer(settings.embedding)
            window = embedding_space(settings.embedding).window
            (prompt,) = tokens.lengths([document_prompt(settings.embedding)])
            check_window(chosen.tokens, chosen.prefix_tokens, tokens.special_tokens + prompt, window)
            return Sections(tokens, chosen.tokens, chosen.overlap, chosen.prefix_tokens)
        case PythonObject() as chosen:
            own: Chunker = python_object(chosen)
            return own
        case _:
            assert_never(settings.chunking)
