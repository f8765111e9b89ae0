"""A user's own chunker, whose chunks are checked, because citations rely on the promises of its role."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from rag_core.errors import DocumentError, RagError, describe_error
from rag_core.protocols import Chunker
from rag_core.types import Chunk, Document


@dataclass(frozen=True, slots=True)
class CheckedChunker:
    """A chunker that fails a document instead of the sync. `name` is that of the object in the settings."""

    chunker: Chunker
    name: str

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        """Raises DocumentError if the chunker raises an error or breaks a promise."""
        try:
            chunks: object = self.chunker.split(document_id, document)
        except RagError:
            raise
        except Exception as error:
            raise DocumentError("split", f"{self.name}: {describe_error(error)}") from error
        for broken in find_broken_promises(document_id, document, chunks):
            raise DocumentError("split", f"{self.name}: {broken}")
        return tuple(chunks)  # type: ignore[arg-type]  # checked above


def find_broken_promises(document_id: UUID, document: Document, chunks: object) -> Iterator[str]:
    """Yields what is wrong with the chunks of a document."""
    if not isinstance(chunks, list | tuple):
        yield f"split must return a tuple of chunks, got {type(chunks).__name__}"
        return
    ids = set[UUID]()
    for ordinal, chunk in enumerate(chunks):
        if not isinstance(chunk, Chunk):
            yield f"split must return chunks, got {type(chunk).__name__}"
            return
        span = document.text[chunk.start : chunk.end]
        if chunk.text != span:
            position = f"document.text[{chunk.start}:{chunk.end}]"
            yield f"chunk {ordinal} must be {position}, {span!r:.60}, got {chunk.text!r:.60}"
        elif chunk.text != chunk.text.strip() or not chunk.text:
            yield f"chunk {ordinal} must have text without white space at both ends, got {chunk.text!r:.60}"
        if chunk.ordinal != ordinal:
            yield f"ordinals must count from 0: that of chunk {ordinal} is {chunk.ordinal}"
        if chunk.document_id != document_id:
            yield f"chunk {ordinal} must have the document_id {document_id}, got {chunk.document_id}"
        if chunk.id in ids:
            yield f"ids must differ; chunk {ordinal} has the id of an earlier one, {chunk.id}"
        ids.add(chunk.id)
