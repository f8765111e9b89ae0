"""Storage of segments, and dead marks on former versions, in the transaction that publishes or deletes documents.

The rows of a segment are sent as a few long texts and arrays, which the server splits. This is faster than a temporary
table; row-level security forbids `COPY`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol
from uuid import UUID

from psycopg import Connection
from psycopg.types.json import Jsonb

from rag_core.errors import DocumentError
from rag_core.storage.lexical.kinds import KINDS, SPLADE, WORDS
from rag_core.storage.lexical.segment import MAX_CHUNKS, Segment, SegmentDocument, build_segments
from rag_core.text.analysis import VERSION, terms
from rag_core.types import Draft

INSERT_SEGMENT = """
insert into lexical_segments (tenant, collection, kind, n_chunks, chunk_ids, total_length, languages, analysis)
values (%(tenant)s, %(collection)s, %(kind)s, %(n_chunks)s, %(chunk_ids)s, %(total_length)s, %(languages)s,
  %(analysis)s) returning id"""
INSERT_POSTINGS = """
insert into lexical_postings (tenant, collection, kind, term, segment_id, postings)
select %(tenant)s, %(collection)s, %(kind)s, term, %(segment)s, substring(%(postings)s::bytea from start for size)
from unnest(string_to_array(%(terms)s, E'\\n'), string_to_array(%(starts)s, ' ')::int[],
  string_to_array(%(sizes)s, ' ')::int[]) as row (term, start, size)"""
INSERT_DOCUMENTS = """
insert into lexical_documents (tenant, collection, kind, segment_id, first_local, n_chunks, total_length, language,
  document_id, version)
select %(tenant)s, %(collection)s, %(kind)s, %(segment)s, row.*
from unnest(%(firsts)s::int[], %(counts)s::int[], %(lengths)s::int[], %(languages)s::text[], %(ids)s::uuid[],
  %(versions)s::bigint[]) as row"""
# Rows are locked in the order of ids, as a merge locks them. A second statement updates them, because it sees the
# segments that a merge has moved them to meanwhile.
LOCK_LIVE = """
select from lexical_documents l where l.tenant = %(tenant)s and l.collection = %(collection)s
  and l.document_id = any(%(ids)s::uuid[]) and l.kind = any(%(kinds)s) and not l.dead
order by l.document_id, l.kind for update"""
MARK_DEAD = """
update lexical_documents l set dead = true where l.tenant = %(tenant)s and l.collection = %(collection)s
  and l.document_id = any(%(ids)s::uuid[]) and l.kind = any(%(kinds)s) and not l.dead"""
# `ids` is null for all documents of the collection.
ORPHANS = """
select l.document_id from lexical_documents l where l.tenant = %(tenant)s and l.collection = %(collection)s
  and (%(ids)s::uuid[] is null or l.document_id = any(%(ids)s::uuid[])) and not l.dead
  and not exists (select from documents d where d.tenant = l.tenant and d.collection = l.collection
    and d.id = l.document_id and d.n_chunks = l.n_chunks)
order by l.document_id, l.kind for update"""


class DocumentCounts(Protocol):
    """The counts of a document in a segment: its chunks, and their terms."""

    @property
    def n_chunks(self) -> int: ...
    @property
    def total_length(self) -> int: ...
    @property
    def language(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PreparedSegments:
    """Documents, and the segments built from them, ready to be stored.

    `analysis` identifies what produced the terms: the version of the text analysis, or a SPLADE model's fingerprint.
    """

    documents: tuple[SegmentDocument, ...]
    segments: tuple[Segment, ...]
    kind: str = WORDS
    analysis: str = VERSION

    @classmethod
    def build(
        cls, documents: Sequence[SegmentDocument], kind: str = WORDS, analysis: str = VERSION
    ) -> "PreparedSegments":
        return cls(tuple(documents), tuple(build_segments(documents, kind)), kind, analysis)

    def restrict_to(self, ids: Collection[UUID]) -> "PreparedSegments":
        """Returns segments of the documents with these ids only. They are built again if any document is left out."""
        remaining = [document for document in self.documents if document.id in ids]
        if len(remaining) == len(self.documents):
            return self
        return PreparedSegments.build(remaining, self.kind, self.analysis)


def prepare(drafts: Sequence[Draft], version: int) -> PreparedSegments:
    """Builds the segments of the drafts' words. This takes time, so it belongs before the transaction.

    Raises DocumentError for a document that does not fit into a segment.
    """
    return PreparedSegments.build(
        [_word_document(draft, version) for draft in drafts if draft.document and draft.chunks]
    )


def prepare_weights(drafts: Sequence[Draft], version: int, fingerprint: str) -> PreparedSegments:
    """Builds the segments of the drafts' term weights. `fingerprint` is that of the model that produced them."""
    documents = [
        SegmentDocument(draft.id, version, "", _chunk_ids(draft), draft.weights) for draft in drafts if draft.weights
    ]
    return PreparedSegments.build(documents, SPLADE, fingerprint)


def add_segments(connection: Connection, scope: Mapping[str, Any], prepared: PreparedSegments) -> None:
    """Stores the segments.

    The caller's transaction must have locked the rows of these documents, and marked their former versions as dead.
    """
    scope = {**scope, "kind": prepared.kind, "analysis": prepared.analysis}
    for segment in prepared.segments:
        id = insert_segment(connection, scope, segment.documents, segment.chunk_ids)
        insert_postings(connection, scope, id, segment.terms, segment.sizes, segment.postings)
        documents = {
            "segment": id,
            "firsts": [document.first_local for document in segment.documents],
            "counts": [document.n_chunks for document in segment.documents],
            "lengths": [document.total_length for document in segment.documents],
            "languages": [document.language for document in segment.documents],
            "ids": [document.id for document in segment.documents],
            "versions": [document.version for document in segment.documents],
        }
        connection.execute(INSERT_DOCUMENTS, {**scope, **documents})


def mark_dead(
    connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID], kinds: Sequence[str] = KINDS
) -> None:
    """Marks these documents as dead in every segment of these kinds."""
    if documents:
        for statement in (LOCK_LIVE, MARK_DEAD):
            connection.execute(statement, {**scope, "ids": list(documents), "kinds": list(kinds)})


def mark_orphans_dead(
    connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID] | None = None
) -> Sequence[UUID]:
    """Marks as dead all rows whose document is not stored, or is stored with another count of chunks.

    Checks these documents, or the entire collection. Returns the ids of the marked documents.
    """
    rows = connection.execute(ORPHANS, {**scope, "ids": None if documents is None else list(documents)})
    orphans = [row[0] for row in rows]
    mark_dead(connection, scope, orphans)
    return orphans


def insert_segment(
    connection: Connection, scope: Mapping[str, Any], documents: Iterable[DocumentCounts], chunk_ids: bytes
) -> int:
    """Inserts the row of a segment with these documents and returns its id. `chunk_ids` holds 16 bytes per chunk."""
    languages: Counter[str] = Counter()
    total_length = 0
    for document in documents:
        languages[document.language] += document.n_chunks
        total_length += document.total_length
    totals = {"n_chunks": languages.total(), "total_length": total_length, "languages": Jsonb(languages)}
    row = connection.execute(INSERT_SEGMENT, {**scope, **totals, "chunk_ids": chunk_ids}).fetchone()
    return int(row[0]) if row else 0


def insert_postings(
    connection: Connection,
    scope: Mapping[str, Any],
    segment: int,
    terms: Sequence[str],
    sizes: Sequence[int],
    postings: bytes,
) -> None:
    """Inserts the posting lists of a segment. `postings` holds them in the order of `terms`, of `sizes` bytes each."""
    starts = [end - size + 1 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    values = {
        "segment": segment,
        "terms": "\n".join(terms),
        "starts": " ".join(map(str, starts)),
        "sizes": " ".join(map(str, sizes)),
        "postings": postings,
    }
    connection.execute(INSERT_POSTINGS, {**scope, **values})


def _word_document(draft: Draft, version: int) -> SegmentDocument:
    if len(draft.chunks) > MAX_CHUNKS:
        raise DocumentError("publish", f"a document can have at most {MAX_CHUNKS} chunks, got {len(draft.chunks)}")
    language = draft.document.language if draft.document else ""
    chunks = [terms(chunk.embedded_text, language) for chunk in draft.chunks]
    return SegmentDocument(draft.id, version, language, _chunk_ids(draft), chunks)


def _chunk_ids(draft: Draft) -> list[UUID]:
    return [chunk.id for chunk in draft.chunks]
