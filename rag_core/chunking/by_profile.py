"""A chunker for documents of several kinds: each is split by the chunker of its own profile."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from rag_core.protocols import Chunker
from rag_core.types import Chunk, Document


@dataclass(frozen=True, slots=True)
class ProfileChunker:
    """A chunker that selects another one by the document's profile; `chunker` splits documents of other profiles."""

    chunker: Chunker
    by_profile: Mapping[str, Chunker]
    detect: Callable[[Document], str]

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        return self.by_profile.get(self.detect(document), self.chunker).split(document_id, document)
