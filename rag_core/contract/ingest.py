"""Parse, chunk, embed, store, index."""

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

from rag_core.chunking.cut_points import Characters
from rag_core.chunking.positions import PagedChunker
from rag_core.chunking.sections import SectionsChunker
from rag_core.config import Settings
from rag_core.contract.models import loaded_encoder, patiently
from rag_core.contract.names import collection_of
from rag_core.errors import DocumentError, ModelError, RagError
from rag_core.ingestion.recipe import Recipe
from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.sources.local import local_uri
from rag_core.ingestion.sync import Options, Sync
from rag_core.parsing.metadata import described
from rag_core.parsing.outline import outlined
from rag_core.protocols import Chunker, DocumentEmbedder, Source
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import Target
from rag_core.types import Chunk, Document, Draft, Entry, Matrix, Metadata, chunk_id, document_id
from rag_core.wiring.embedding import embedding_space, tokenizer

CHUNK_SIZE, OVERLAP, SMALLEST_CHUNK = 512, 50, 100
"""Characters."""
BATCH = 25
REQUIRED = ("filename", "file_path", "file_size")

_BETWEEN = "\n\n"
_NOBODY = UUID(int=0)
_log = logging.getLogger(__name__)


def parse_pdf(file_path: str | Path) -> str:
    """Its text as Markdown. FileNotFoundError; ValueError if it is no PDF; RuntimeError if it is damaged, encrypted or
    has no text.
    """
    return _parsed(Path(file_path)).text


def chunk_text(markdown: str, chunk_size: int = CHUNK_SIZE, overlap: int = OVERLAP) -> list[str]:
    """Whole sentences of one section each, up to `chunk_size` characters; whole ones of the last `overlap` characters
    are repeated. ValueError if chunk_size < 100 or overlap >= chunk_size.
    """
    document = outlined(Document(uri="", text=markdown))
    return [chunk.text for chunk in _chunker(chunk_size, overlap).split(_NOBODY, document)]


def embed_chunks(chunks: Sequence[str]) -> list[tuple[str, list[float]]]:
    """Each text with its vector of length 1, in their order; a text that cannot be embedded is left out, and a warning
    logged, as for one that is longer than the model reads, whose end says nothing then. ValueError without chunks;
    RuntimeError if the model cannot be loaded or reached.
    """
    if not chunks:
        raise ValueError("chunks must hold at least one text, got none")
    settings = load_settings()
    try:
        _warn_of_long(settings, chunks)
        embedder = loaded_encoder(settings)
        batches = (chunks[first : first + BATCH] for first in range(0, len(chunks), BATCH))
        return [pair for batch in batches for pair in _pairs(embedder, batch)]
    except ModelError as error:
        raise RuntimeError(f"the embedding model cannot be used: {error}") from error


def store_document(name: str, embeddings: Sequence[tuple[str, Sequence[float]]], metadata: Mapping[str, Any]) -> UUID:
    """The id of the document, which is the same when the same `file_path` is stored again in its place.

    It goes to the collection `docs_{name}`, which is made if needed; its text is that of the chunks, an empty line
    between each two. ValueError for a name that is no word, without chunks, for vectors of another dimension than the
    model's, or without the metadata filename, file_path and file_size; RuntimeError if the store cannot take it.
    """
    _check(name, metadata)
    texts = [text for text, _ in embeddings]
    document = Document(uri=_uri(str(metadata["file_path"])), text=_BETWEEN.join(texts), media_type="text/markdown")
    return _stored(name, document, _laid_out(texts), _matrix([vector for _, vector in embeddings]), metadata)


def index_document(name: str, file_path: str | Path, options: Mapping[str, int] | None = None) -> UUID:
    """A PDF parsed, chunked, embedded and stored, its chunks with their pages and sections; the document's id.

    `options` may have `chunk_size` and `overlap`. Raises what `parse_pdf`, `chunk_text`, `embed_chunks` and
    `store_document` raise.
    """
    path, chosen = Path(file_path), {"chunk_size": CHUNK_SIZE, "overlap": OVERLAP, **(options or {})}
    if unknown := sorted(chosen.keys() - {"chunk_size", "overlap"}):
        raise ValueError(f"options may have chunk_size and overlap, got {', '.join(unknown)}")
    chunker = _chunker(**chosen)
    document = _parsed(path)
    metadata = {"filename": path.name, "file_path": str(path), "file_size": path.stat().st_size}
    _check(name, metadata)
    chunks = chunker.split(_NOBODY, document)
    vectors = dict(embed_chunks([chunk.text for chunk in chunks]))
    kept = [chunk for chunk in chunks if chunk.text in vectors]
    return _stored(name, document, kept, _matrix([vectors[chunk.text] for chunk in kept]), metadata)


def _parsed(path: Path) -> Document:
    from rag_core.parsing.pdf.pdf import PdfParser

    body = path.read_bytes()
    if b"%PDF-" not in body[:1024]:
        raise ValueError(f"{path} is not a PDF: it does not begin as one")
    try:
        return PdfParser().parse(local_uri(str(path)), body)
    except DocumentError as error:
        raise RuntimeError(f"{path} cannot be read: {error.reason}") from error


def _chunker(chunk_size: int, overlap: int) -> Chunker:
    if chunk_size < SMALLEST_CHUNK:
        raise ValueError(f"chunk_size must be >= {SMALLEST_CHUNK}, got {chunk_size}")
    if not 0 <= overlap < chunk_size:
        raise ValueError(f"overlap must be in [0, chunk_size), got {overlap} of {chunk_size}")
    return PagedChunker(SectionsChunker(Characters(), chunk_size, overlap, 0))


def _warn_of_long(settings: Settings, texts: Sequence[str]) -> None:
    tokens = tokenizer(settings.embedding)
    room = embedding_space(settings.embedding).window - tokens.special_tokens
    for text, length in zip(texts, tokens.lengths(texts), strict=True):
        if length > room:
            _log.warning("only the first %d of %d tokens of a chunk are embedded: %.60r", room, length, text)


def _pairs(embedder: DocumentEmbedder, texts: Sequence[str]) -> list[tuple[str, list[float]]]:
    try:
        return list(zip(texts, patiently(embedder.embed, texts).tolist(), strict=True))
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 - what somebody's own embedder raises for a text has no common root
        if len(texts) == 1:
            _log.warning("left out a chunk that cannot be embedded: %s: %.60r", error, texts[0])
            return []
    return [pair for text in texts for pair in _pairs(embedder, [text])]


def _check(name: str, metadata: Mapping[str, Any]) -> None:
    collection_of(name)
    if missing := [key for key in REQUIRED if key not in metadata]:
        raise ValueError(f"metadata must have {', '.join(REQUIRED)}; missing: {', '.join(missing)}")


def _uri(file_path: str) -> str:
    if "://" in file_path:
        return file_path
    return local_uri(file_path) if Path(file_path).exists() else Path(file_path).absolute().as_uri()


def _laid_out(texts: Sequence[str]) -> list[Chunk]:
    """Where the texts stand when they are joined."""
    starts = np.cumsum([0, *(len(text) + len(_BETWEEN) for text in texts)]).tolist()
    return [
        Chunk(id=_NOBODY, document_id=_NOBODY, ordinal=ordinal, text=text, start=start, end=start + len(text))
        for ordinal, (text, start) in enumerate(zip(texts, starts, strict=False))
    ]


def _matrix(vectors: Sequence[Sequence[float]]) -> Matrix:
    if not vectors:
        raise ValueError("a document needs at least one chunk with its vector, got none")
    dimensions = sorted({len(vector) for vector in vectors})
    expected = embedding_space(load_settings().embedding).dimension
    if dimensions != [expected]:
        raise ValueError(f"vectors must have the model's dimension {expected}, got {dimensions}")
    return np.array(vectors, np.float32)


def _stored(
    name: str, document: Document, chunks: Sequence[Chunk], vectors: Matrix, metadata: Mapping[str, Any]
) -> UUID:
    """Through the product's own sync: of a source that is this one document, which has been read already."""
    settings, collection = load_settings(), collection_of(name)
    entry = Entry(uri=document.uri, size=int(metadata["file_size"]), modified_ns=time.time_ns())
    try:
        sync = Sync(
            postgres=Postgres.open(settings.store.url),
            tenant=settings.tenant,
            collection=collection,
            sources=[_OneEntry(entry)],
            recipe=Recipe(lambda _: "contract", "contract", embedding_space(settings.embedding)),
            options=Options(checksum=True),
            graph=settings.graph is not None,
        )
        written = _Written(_titled(document, metadata, settings), tuple(chunks), vectors)
        report = sync.run(written)
    except RagError as error:
        raise RuntimeError(f"{collection} cannot store {entry.uri}: {error}") from error
    if report.failures:
        raise RuntimeError(f"{collection} cannot store {entry.uri}: {report.failures[0]['reason']}")
    return document_id(settings.tenant, collection, entry.uri)


def _titled(document: Document, metadata: Metadata, settings: Settings) -> Document:
    named = replace(document, title=document.title or str(metadata["filename"]))
    known = described(named, settings.parsing.detect_language)
    return replace(known, metadata={**known.metadata, **metadata})


@dataclass(frozen=True, slots=True)
class _OneEntry:
    """A source whose only document is at hand."""

    entry: Entry

    @property
    def uri(self) -> str:
        return self.entry.uri

    def listing(self) -> Iterator[Entry]:
        yield self.entry

    def read(self, entry: Entry) -> bytes:
        raise DocumentError("read", f"{entry.uri} has been read already")


@dataclass(frozen=True, slots=True)
class _Written:
    """A runner that publishes what it has for the one draft that the sync asks for."""

    document: Document
    chunks: Sequence[Chunk]
    vectors: Matrix

    def run(
        self,
        target: Target,
        sources: Mapping[int, Source],  # noqa: ARG002 - it has read them
        drafts: Sequence[Draft],
    ) -> RunTimes:
        with closing(target.open()) as writer:
            writer.publish([self._filled(draft) for draft in drafts])
        return RunTimes()

    def _filled(self, draft: Draft) -> Draft:
        return replace(
            draft,
            sha256=sha256(self.document.text.encode()).digest(),
            document=self.document,
            chunks=tuple(self._owned(draft.id)),
            vectors=self.vectors,
            embedded=len(self.chunks),
        )

    def _owned(self, document: UUID) -> Iterator[Chunk]:
        """Numbered anew: some may have been left out."""
        seen: Counter[str] = Counter()
        for ordinal, chunk in enumerate(self.chunks):
            id = chunk_id(document, chunk.text, seen[chunk.text])
            yield replace(chunk, id=id, document_id=document, ordinal=ordinal)
            seen[chunk.text] += 1
