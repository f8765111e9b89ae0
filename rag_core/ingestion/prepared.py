"""A document that was split and embedded elsewhere, as the source and the runner of a sync."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from uuid import UUID

from rag_core.errors import DocumentError
from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.watch import Check, never_stop
from rag_core.protocols import Source
from rag_core.storage.publishing import WriteTarget
from rag_core.types import Chunk, Document, Draft, Entry, Matrix, chunk_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDocument:
    """The only document of its source. `vectors` has one row per chunk; `size` is that of the document in bytes.

    The ids and ordinals of the chunks are set when they are published.
    """

    document: Document
    chunks: Sequence[Chunk]
    vectors: Matrix
    size: int

    @property
    def uri(self) -> str:
        return self.document.uri

    def listing(self) -> Iterator[Entry]:
        yield Entry(uri=self.uri, size=self.size, modified_ns=time.time_ns())

    def read(self, entry: Entry) -> bytes:
        raise DocumentError("read", f"{entry.uri} has been read already")

    def run(
        self,
        target: WriteTarget,
        sources: Mapping[int, Source],  # noqa: ARG002 - the document has been read
        drafts: Sequence[Draft],
        check: Check = never_stop,
    ) -> RunTimes:
        check()
        with closing(target.open()) as writer:
            writer.publish([self._complete_draft(draft) for draft in drafts])
        return RunTimes()

    def _complete_draft(self, draft: Draft) -> Draft:
        return replace(
            draft,
            sha256=sha256(self.document.text.encode()).digest(),
            document=self.document,
            chunks=tuple(self._number_chunks(draft.id)),
            vectors=self.vectors,
            embedded=len(self.chunks),
        )

    def _number_chunks(self, document: UUID) -> Iterator[Chunk]:
        repetitions: Counter[str] = Counter()
        for ordinal, chunk in enumerate(self.chunks):
            id = chunk_id(document, chunk.text, repetitions[chunk.text])
            yield replace(chunk, id=id, document_id=document, ordinal=ordinal)
            repetitions[chunk.text] += 1
