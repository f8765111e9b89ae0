"""Parsing, chunking, embedding and storing of documents."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import stamina

from rag_core.chunking.cut_points import CharacterTokenizer
from rag_core.chunking.positions import PagedChunker
from rag_core.chunking.sections import SectionsChunker
from rag_core.config import RuleGraph, Settings
from rag_core.contract.stage_log import count_results, log_stage, warn
from rag_core.errors import ConfigError, DocumentError, ModelError, RagError, RefusedError, SpaceError, UsageError
from rag_core.ingestion.sources.local import local_uri
from rag_core.knowledge_base import KnowledgeBase
from rag_core.models.endpoint import TRANSIENT_STATUSES
from rag_core.parsing.metadata import complete_metadata
from rag_core.parsing.outline import with_outline
from rag_core.protocols import Chunker, DocumentEmbedder
from rag_core.settings import load_settings
from rag_core.types import Chunk, Document, Matrix
from rag_core.wiring.embedding import build_tokenizer, embedding_space, load_shared_encoder

CHUNK_SIZE, OVERLAP, MIN_CHUNK_SIZE = 512, 50, 100
"""Lengths in characters."""
BATCH_SIZE = 25
REQUIRED_METADATA = ("filename", "file_path", "file_size")
NO_ID = UUID(int=0)
"""The id of chunks and documents that are not stored."""

_CHUNK_SEPARATOR = "\n\n"
_NAME = re.compile(r"\w[\w.-]{0,62}")
_ATTEMPTS, _FIRST_WAIT, _MAX_WAIT = 4, 1.0, 60.0
"""Three retries, after 1, 2 and 4 seconds."""


@log_stage("parse_pdf")
def parse_pdf(file_path: str | Path) -> str:
    """The text of a PDF as Markdown.

    Raises FileNotFoundError if the file does not exist, ValueError if it is not a PDF, and RuntimeError if it is
    damaged, encrypted or has no text.
    """
    return parse_pdf_document(Path(file_path)).text


@log_stage("chunk_text")
def chunk_text(markdown: str, chunk_size: int = CHUNK_SIZE, overlap: int = OVERLAP) -> list[str]:
    """Splits a text into chunks of whole sentences. No chunk crosses the border of a section.

    A chunk has at most `chunk_size` characters, and repeats whole sentences from the last `overlap` characters of the
    chunk before. Raises ValueError if chunk_size < 100 or overlap >= chunk_size.
    """
    document = with_outline(Document(uri="", text=markdown))
    return [chunk.text for chunk in split_document(build_character_chunker(chunk_size, overlap), document)]


@log_stage("embed_chunks")
def embed_chunks(chunks: Sequence[str]) -> list[tuple[str, list[float]]]:
    """Pairs of a text and its vector of length 1, in the order given.

    A text that cannot be embedded is left out; a text that exceeds the model's window is embedded without its end. Both
    log a warning. Raises ValueError if there are no chunks, and RuntimeError if the model cannot be loaded or reached.
    """
    if not chunks:
        raise ValueError("chunks must contain at least one text, got none")
    with builtin_errors("the embedding model cannot be used"):
        settings = load_settings()
        _warn_about_long_chunks(settings, chunks)
        embedder = load_shared_encoder(settings.embedding)
        batches = (chunks[first : first + BATCH_SIZE] for first in range(0, len(chunks), BATCH_SIZE))
        pairs = [pair for batch in batches for pair in _embed_batch(embedder, batch)]
    count_results(chunks=len(pairs))
    return pairs


@log_stage("store_document")
def store_document(name: str, embeddings: Sequence[tuple[str, Sequence[float]]], metadata: Mapping[str, Any]) -> UUID:
    """Stores a document in the collection `docs_{name}` and returns its id. Creates the collection if needed.

    The document's text is that of the chunks, separated by empty lines. A document with the same `file_path` is
    replaced and keeps its id.

    Raises ValueError if the name is not a word, if there are no chunks, if vectors do not have the model's dimension,
    or if the metadata lacks filename, file_path or file_size. Raises RuntimeError if the store rejects the document.
    """
    collection_name(name)
    if missing := [key for key in REQUIRED_METADATA if key not in metadata]:
        raise ValueError(f"metadata must have {', '.join(REQUIRED_METADATA)}; missing: {', '.join(missing)}")
    texts = [text for text, _ in embeddings]
    starts = accumulate((len(text) + len(_CHUNK_SEPARATOR) for text in texts), initial=0)
    chunks = [
        Chunk(id=NO_ID, document_id=NO_ID, ordinal=ordinal, text=text, start=start, end=start + len(text))
        for ordinal, (text, start) in enumerate(zip(texts, starts, strict=False))
    ]
    uri = _document_uri(str(metadata["file_path"]))
    document = Document(uri=uri, text=_CHUNK_SEPARATOR.join(texts), media_type="text/markdown")
    return store_chunks(name, document, chunks, [vector for _, vector in embeddings], metadata)


@log_stage("parse_pdf")
def parse_pdf_document(path: Path) -> Document:
    """Raises the errors of `parse_pdf`."""
    from rag_core.parsing.pdf.pdf import PdfParser

    body = path.read_bytes()
    if b"%PDF-" not in body[:1024]:
        raise ValueError(f"{path} is not a PDF: its first 1024 bytes do not contain %PDF-")
    try:
        document = PdfParser().parse(local_uri(str(path)), body)
    except DocumentError as error:
        raise RuntimeError(f"{path} cannot be read: {error.reason}") from error
    count_results(characters=len(document.text))
    return document


def build_character_chunker(chunk_size: int, overlap: int) -> Chunker:
    """Raises ValueError if chunk_size < 100 or overlap >= chunk_size."""
    if chunk_size < MIN_CHUNK_SIZE:
        raise ValueError(f"chunk_size must be >= {MIN_CHUNK_SIZE}, got {chunk_size}")
    if not 0 <= overlap < chunk_size:
        raise ValueError(f"overlap must be in [0, chunk_size), got {overlap} of {chunk_size}")
    return PagedChunker(SectionsChunker(CharacterTokenizer(), chunk_size, overlap, 0))


@log_stage("chunk_text")
def split_document(chunker: Chunker, document: Document) -> Sequence[Chunk]:
    chunks = chunker.split(NO_ID, document)
    count_results(chunks=len(chunks))
    return chunks


@log_stage("store_document")
def store_chunks(
    name: str,
    document: Document,
    chunks: Sequence[Chunk],
    vectors: Sequence[Sequence[float]],
    metadata: Mapping[str, Any],
) -> UUID:
    """Stores the document with the caller's metadata and the entities in its chunks, and returns its id.

    Raises the errors of `store_document`.
    """
    if not vectors:
        raise ValueError("a document must have at least one chunk with a vector, got none")
    collection = collection_name(name)
    with builtin_errors(f"{collection} cannot store {document.uri}"):
        settings = load_settings()
        dimensions = sorted({len(vector) for vector in vectors})
        expected = embedding_space(settings.embedding).dimension
        if dimensions != [expected]:
            raise ValueError(f"vectors must have the model's dimension {expected}, got {dimensions}")
        titled = replace(document, title=document.title or str(metadata["filename"]))
        complete = complete_metadata(titled, settings.parsing.detect_language)
        document = replace(complete, metadata={**complete.metadata, **metadata})
        with_graph = settings.model_copy(update={"graph": settings.graph or RuleGraph(type="rules")})
        with KnowledgeBase(with_graph) as knowledge:
            matrix, size = np.array(vectors, np.float32), int(metadata["file_size"])
            id = knowledge.store(document, chunks, matrix, collection, size)
    count_results(chunks=len(chunks))
    return id


def collection_name(name: str) -> str:
    """Returns `docs_{name}`. Raises ValueError if the name is not a word."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"name must be a word of letters, digits, `_`, `-` and `.`, at most 63 characters, got {name!r}"
        )
    return f"docs_{name}"


@contextmanager
def builtin_errors(message: str) -> Iterator[None]:
    """Raises ValueError or RuntimeError, beginning with the message, for a RagError of the block."""
    try:
        yield
    except (ConfigError, SpaceError, RefusedError) as error:  # UsageErrors, but about the settings
        raise RuntimeError(f"{message}: {error}") from error
    except UsageError as error:
        raise ValueError(f"{message}: {error}") from error
    except RagError as error:
        raise RuntimeError(f"{message}: {error}") from error


def embed_with_retries(embed: Callable[[Sequence[str]], Matrix], texts: Sequence[str]) -> Matrix:
    """Embeds the texts and retries temporary failures. Raises ModelError if the last attempt fails temporarily too."""
    try:
        return stamina.retry(
            on=is_transient, attempts=_ATTEMPTS, timeout=None, wait_initial=_FIRST_WAIT, wait_max=_MAX_WAIT
        )(embed)(texts)
    except Exception as error:
        if is_transient(error):
            raise ModelError(f"no answer after {_ATTEMPTS} attempts: {error}") from error
        raise


def is_transient(error: Exception) -> bool:
    """True if a later attempt can succeed: no connection, a timeout, or an HTTP status of a temporary failure."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(error, ConnectionError | TimeoutError) or status in TRANSIENT_STATUSES


def _warn_about_long_chunks(settings: Settings, texts: Sequence[str]) -> None:
    tokenizer = build_tokenizer(settings.embedding)
    max_tokens = embedding_space(settings.embedding).window - tokenizer.special_tokens
    for text, length in zip(texts, tokenizer.lengths(texts), strict=True):
        if length > max_tokens:
            warn(f"only the first {max_tokens} of {length} tokens of a chunk are embedded: {text!r:.60}")


def _embed_batch(embedder: DocumentEmbedder, texts: Sequence[str]) -> list[tuple[str, list[float]]]:
    """Embeds the texts together, or one by one if that fails, to leave out only those that fail alone."""
    try:
        return list(zip(texts, embed_with_retries(embedder.embed, texts).tolist(), strict=True))
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 - the errors of users' embedders have no common base class
        if len(texts) == 1:
            warn(f"left out a chunk that cannot be embedded: {error}: {texts[0]!r:.60}")
            return []
    return [pair for text in texts for pair in _embed_batch(embedder, [text])]


def _document_uri(file_path: str) -> str:
    if "://" in file_path:
        return file_path
    return local_uri(file_path) if Path(file_path).exists() else Path(file_path).absolute().as_uri()
