"""Parsing, chunking, embedding, storing and indexing of documents."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from rag_core.chunking.cut_points import CharacterTokenizer
from rag_core.chunking.positions import PagedChunker
from rag_core.chunking.sections import SectionsChunker
from rag_core.config import Settings
from rag_core.contract.models import embed_with_retries, load_encoder
from rag_core.contract.names import collection_name
from rag_core.errors import DocumentError, ModelError, RagError
from rag_core.ingestion.recipe import Recipe
from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.sources.local import local_uri
from rag_core.ingestion.sync import Sync, SyncOptions
from rag_core.parsing.metadata import complete_metadata
from rag_core.parsing.outline import with_outline
from rag_core.protocols import Chunker, DocumentEmbedder, Source
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.types import Chunk, Document, Draft, Entry, Matrix, Metadata, chunk_id, document_id
from rag_core.wiring.embedding import build_tokenizer, embedding_space

CHUNK_SIZE, OVERLAP, MIN_CHUNK_SIZE = 512, 50, 100
"""Lengths in characters."""
BATCH_SIZE = 25
REQUIRED_METADATA = ("filename", "file_path", "file_size")

_CHUNK_SEPARATOR = "\n\n"
_NO_ID = UUID(int=0)
_log = logging.getLogger(__name__)


def parse_pdf(file_path: str | Path) -> str:
    """The text of a PDF as Markdown.

    Raises FileNotFoundError if the file does not exist, ValueError if it is not a PDF, and RuntimeError if it is
    damaged, encrypted or has no text.
    """
    return _parse_pdf_document(Path(file_path)).text


def chunk_text(markdown: str, chunk_size: int = CHUNK_SIZE, overlap: int = OVERLAP) -> list[str]:
    """Splits a text into chunks of whole sentences. No chunk crosses the border of a section.

    A chunk has at most `chunk_size` characters, and repeats whole sentences from the last `overlap` characters of the
    chunk before. Raises ValueError if chunk_size < 100 or overlap >= chunk_size.
    """
    document = with_outline(Document(uri="", text=markdown))
    return [chunk.text for chunk in _build_character_chunker(chunk_size, overlap).split(_NO_ID, document)]


def embed_chunks(chunks: Sequence[str]) -> list[tuple[str, list[float]]]:
    """Pairs of a text and its vector of length 1, in the order given.

    A text that cannot be embedded is left out; a text that exceeds the model's window is embedded without its end. Both
    log a warning. Raises ValueError if there are no chunks, and RuntimeError if the model cannot be loaded or reached.
    """
    if not chunks:
        raise ValueError("chunks must contain at least one text, got none")
    settings = load_settings()
    try:
        _warn_about_long_chunks(settings, chunks)
        embedder = load_encoder(settings)
        batches = (chunks[first : first + BATCH_SIZE] for first in range(0, len(chunks), BATCH_SIZE))
        return [pair for batch in batches for pair in _embed_batch(embedder, batch)]
    except ModelError as error:
        raise RuntimeError(f"the embedding model cannot be used: {error}") from error


def store_document(name: str, embeddings: Sequence[tuple[str, Sequence[float]]], metadata: Mapping[str, Any]) -> UUID:
    """Stores a document in the collection `docs_{name}` and returns its id. Creates the collection if needed.

    The document's text is that of the chunks, separated by empty lines. A document with the same `file_path` is
    replaced and keeps its id.

    Raises ValueError if the name is not a word, if there are no chunks, if vectors do not have the model's dimension,
    or if the metadata lacks filename, file_path or file_size. Raises RuntimeError if the store rejects the document.
    """
    _check_arguments(name, metadata)
    texts = [text for text, _ in embeddings]
    text = _CHUNK_SEPARATOR.join(texts)
    document = Document(uri=_document_uri(str(metadata["file_path"])), text=text, media_type="text/markdown")
    vectors = _matrix_from_vectors([vector for _, vector in embeddings])
    return _store(name, document, _chunks_from_texts(texts), vectors, metadata)


def index_document(name: str, file_path: str | Path, options: Mapping[str, int] | None = None) -> UUID:
    """Parses, chunks, embeds and stores a PDF and returns the document's id. Chunks have their pages and sections.

    `options` can have `chunk_size` and `overlap`. Raises the errors of `parse_pdf`, `chunk_text`, `embed_chunks` and
    `store_document`.
    """
    path, sizes = Path(file_path), {"chunk_size": CHUNK_SIZE, "overlap": OVERLAP, **(options or {})}
    if unknown := sorted(sizes.keys() - {"chunk_size", "overlap"}):
        raise ValueError(f"options must be chunk_size or overlap, got {', '.join(unknown)}")
    chunker = _build_character_chunker(**sizes)
    document = _parse_pdf_document(path)
    metadata = {"filename": path.name, "file_path": str(path), "file_size": path.stat().st_size}
    _check_arguments(name, metadata)
    chunks = chunker.split(_NO_ID, document)
    vectors = dict(embed_chunks([chunk.text for chunk in chunks]))
    embedded = [chunk for chunk in chunks if chunk.text in vectors]
    return _store(name, document, embedded, _matrix_from_vectors([vectors[chunk.text] for chunk in embedded]), metadata)


def _parse_pdf_document(path: Path) -> Document:
    from rag_core.parsing.pdf.pdf import PdfParser

    body = path.read_bytes()
    if b"%PDF-" not in body[:1024]:
        raise ValueError(f"{path} is not a PDF: its first 1024 bytes do not contain %PDF-")
    try:
        return PdfParser().parse(local_uri(str(path)), body)
    except DocumentError as error:
        raise RuntimeError(f"{path} cannot be read: {error.reason}") from error


def _build_character_chunker(chunk_size: int, overlap: int) -> Chunker:
    if chunk_size < MIN_CHUNK_SIZE:
        raise ValueError(f"chunk_size must be >= {MIN_CHUNK_SIZE}, got {chunk_size}")
    if not 0 <= overlap < chunk_size:
        raise ValueError(f"overlap must be in [0, chunk_size), got {overlap} of {chunk_size}")
    return PagedChunker(SectionsChunker(CharacterTokenizer(), chunk_size, overlap, 0))


def _warn_about_long_chunks(settings: Settings, texts: Sequence[str]) -> None:
    tokenizer = build_tokenizer(settings.embedding)
    max_tokens = embedding_space(settings.embedding).window - tokenizer.special_tokens
    for text, length in zip(texts, tokenizer.lengths(texts), strict=True):
        if length > max_tokens:
            _log.warning("only the first %d of %d tokens of a chunk are embedded: %.60r", max_tokens, length, text)


def _embed_batch(embedder: DocumentEmbedder, texts: Sequence[str]) -> list[tuple[str, list[float]]]:
    """Embeds the texts together, or one by one if that fails, to leave out only those that fail alone."""
    try:
        return list(zip(texts, embed_with_retries(embedder.embed, texts).tolist(), strict=True))
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 - the errors of users' embedders have no common base class
        if len(texts) == 1:
            _log.warning("left out a chunk that cannot be embedded: %s: %.60r", error, texts[0])
            return []
    return [pair for text in texts for pair in _embed_batch(embedder, [text])]


def _check_arguments(name: str, metadata: Mapping[str, Any]) -> None:
    collection_name(name)
    if missing := [key for key in REQUIRED_METADATA if key not in metadata]:
        raise ValueError(f"metadata must have {', '.join(REQUIRED_METADATA)}; missing: {', '.join(missing)}")


def _document_uri(file_path: str) -> str:
    if "://" in file_path:
        return file_path
    return local_uri(file_path) if Path(file_path).exists() else Path(file_path).absolute().as_uri()


def _chunks_from_texts(texts: Sequence[str]) -> list[Chunk]:
    """Chunks with the texts' positions in the joined text. Their ids are set when they are published."""
    starts = np.cumsum([0, *(len(text) + len(_CHUNK_SEPARATOR) for text in texts)]).tolist()
    return [
        Chunk(id=_NO_ID, document_id=_NO_ID, ordinal=ordinal, text=text, start=start, end=start + len(text))
        for ordinal, (text, start) in enumerate(zip(texts, starts, strict=False))
    ]


def _matrix_from_vectors(vectors: Sequence[Sequence[float]]) -> Matrix:
    if not vectors:
        raise ValueError("a document must have at least one chunk with a vector, got none")
    dimensions = sorted({len(vector) for vector in vectors})
    expected = embedding_space(load_settings().embedding).dimension
    if dimensions != [expected]:
        raise ValueError(f"vectors must have the model's dimension {expected}, got {dimensions}")
    return np.array(vectors, np.float32)


def _store(
    name: str, document: Document, chunks: Sequence[Chunk], vectors: Matrix, metadata: Mapping[str, Any]
) -> UUID:
    """Stores the document by a sync of a source that contains only this document, already read."""
    settings, collection = load_settings(), collection_name(name)
    entry = Entry(uri=document.uri, size=int(metadata["file_size"]), modified_ns=time.time_ns())
    try:
        sync = Sync(
            postgres=Postgres.open(settings.store.url),
            tenant=settings.tenant,
            collection=collection,
            sources=[_SingleEntrySource(entry)],
            recipe=Recipe(lambda _: "contract", "contract", embedding_space(settings.embedding)),
            options=SyncOptions(checksum=True),
            graph=settings.graph is not None,
        )
        runner = _PublishingRunner(_with_caller_metadata(document, metadata, settings), tuple(chunks), vectors)
        report = sync.run(runner)
    except RagError as error:
        raise RuntimeError(f"{collection} cannot store {entry.uri}: {error}") from error
    if report.failures:
        raise RuntimeError(f"{collection} cannot store {entry.uri}: {report.failures[0]['reason']}")
    return document_id(settings.tenant, collection, entry.uri)


def _with_caller_metadata(document: Document, metadata: Metadata, settings: Settings) -> Document:
    titled = replace(document, title=document.title or str(metadata["filename"]))
    complete = complete_metadata(titled, settings.parsing.detect_language)
    return replace(complete, metadata={**complete.metadata, **metadata})


@dataclass(frozen=True, slots=True)
class _SingleEntrySource:
    """A source with one document, which has already been read."""

    entry: Entry

    @property
    def uri(self) -> str:
        return self.entry.uri

    def listing(self) -> Iterator[Entry]:
        yield self.entry

    def read(self, entry: Entry) -> bytes:
        raise DocumentError("read", f"{entry.uri} has been read already")


@dataclass(frozen=True, slots=True)
class _PublishingRunner:
    """A runner that publishes its document for the only draft of the sync."""

    document: Document
    chunks: Sequence[Chunk]
    vectors: Matrix

    def run(
        self,
        target: WriteTarget,
        sources: Mapping[int, Source],  # noqa: ARG002 - the document has been read
        drafts: Sequence[Draft],
    ) -> RunTimes:
        with closing(target.open()) as writer:
            writer.publish([self._complete_draft(draft) for draft in drafts])
        return RunTimes()

    def _complete_draft(self, draft: Draft) -> Draft:
        return replace(
            draft,
            sha256=sha256(self.document.text.encode()).digest(),
            document=self.document,
            chunks=tuple(self._renumber_chunks(draft.id)),
            vectors=self.vectors,
            embedded=len(self.chunks),
        )

    def _renumber_chunks(self, document: UUID) -> Iterator[Chunk]:
        """Yields the chunks with new ids and ordinals, because chunks without a vector were left out."""
        repetitions: Counter[str] = Counter()
        for ordinal, chunk in enumerate(self.chunks):
            id = chunk_id(document, chunk.text, repetitions[chunk.text])
            yield replace(chunk, id=id, document_id=document, ordinal=ordinal)
            repetitions[chunk.text] += 1
