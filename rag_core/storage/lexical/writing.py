"""Segments into the store, and tombstones for what they replace: part of the transaction that publishes or deletes.

Rows travel as a few long texts and one long array, which the server takes apart: quicker than a temporary table, and
no `COPY`, which row-level security refuses.
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
from rag_core.storage.lexical.segment import MOST_CHUNKS, DocumentRow, Segment, SegmentDocument, build
from rag_core.text.analysis import VERSION
from rag_core.text.analysis import terms as analyzed
from rag_core.types import Draft

ADD_SEGMENT = """
insert into lexical_segments (tenant, collection, kind, n_chunks, chunk_ids, total_length, languages, analysis)
values (%(tenant)s, %(collection)s, %(kind)s, %(n_chunks)s, %(chunk_ids)s, %(total_length)s, %(languages)s,
  %(analysis)s) returning id"""
ADD_POSTINGS = """
insert into lexical_postings (tenant, collection, kind, term, segment_id, postings)
select %(tenant)s, %(collection)s, %(kind)s, term, %(segment)s, substring(%(postings)s::bytea from start for size)
from unnest(string_to_array(%(terms)s, E'\\n'), string_to_array(%(starts)s, ' ')::int[],
  string_to_array(%(sizes)s, ' ')::int[]) as row (term, start, size)"""
ADD_DOCUMENTS = """
insert into lexical_documents (tenant, collection, kind, segment_id, first_local, n_chunks, total_length, language,
  document_id, version)
select %(tenant)s, %(collection)s, %(kind)s, %(segment)s, row.*
from unnest(%(firsts)s::int[], %(counts)s::int[], %(lengths)s::int[], %(languages)s::text[], %(ids)s::uuid[],
  %(versions)s::bigint[]) as row"""
# Locked in the order of ids, as a merge locks them; then changed by a statement that sees where a merge has put them.
LOCK_LIVE = """
select from lexical_documents l where l.tenant = %(tenant)s and l.collection = %(collection)s
  and l.document_id = any(%(ids)s::uuid[]) and l.kind = any(%(kinds)s) and not l.dead
order by l.document_id, l.kind for update"""
BURY = """
update lexical_documents l set dead = true where l.tenant = %(tenant)s and l.collection = %(collection)s
  and l.document_id = any(%(ids)s::uuid[]) and l.kind = any(%(kinds)s) and not l.dead"""
# Of these ids, or of all.
ORPHANS = """
select l.document_id from lexical_documents l where l.tenant = %(tenant)s and l.collection = %(collection)s
  and (%(ids)s::uuid[] is null or l.document_id = any(%(ids)s::uuid[])) and not l.dead
  and not exists (select from documents d where d.tenant = l.tenant and d.collection = l.collection
    and d.id = l.document_id and d.n_chunks = l.n_chunks)
order by l.document_id, l.kind for update"""


class Held(Protocol):
    """A document in a segment."""

    @property
    def n_chunks(self) -> int: ...
    @property
    def total_length(self) -> int: ...
    @property
    def language(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """Documents on their way into the lexical index, and the segments that hold them all.

    `analysis` says what made the terms: of `kind` splade, the model's fingerprint.
    """

    documents: tuple[SegmentDocument, ...]
    segments: tuple[Segment, ...]
    kind: str = WORDS
    analysis: str = VERSION

    @classmethod
    def of(cls, documents: Sequence[SegmentDocument], kind: str = WORDS, analysis: str = VERSION) -> "Prepared":
        return cls(tuple(documents), tuple(build(documents, kind)), kind, analysis)

    def only(self, ids: Collection[UUID]) -> "Prepared":
        kept = [document for document in self.documents if document.id in ids]
        return self if len(kept) == len(self.documents) else Prepared.of(kept, self.kind, self.analysis)


def prepared(drafts: Sequence[Draft], version: int) -> Prepared:
    """What takes time, for before the transaction. DocumentError for a document that fits no segment."""
    return Prepared.of([_document(draft, version) for draft in drafts if draft.document and draft.chunks])


def prepared_weights(drafts: Sequence[Draft], version: int, fingerprint: str) -> Prepared:
    """The same for the weights that the drafts carry, made by the model of that fingerprint."""
    weighed = [draft for draft in drafts if draft.weights]
    documents = [SegmentDocument(draft.id, version, "", _chunk_ids(draft), draft.weights) for draft in weighed]
    return Prepared.of(documents, SPLADE, fingerprint)


def add(connection: Connection, scope: Mapping[str, Any], prepared: Prepared) -> None:
    """In the caller's transaction, which has locked the rows of these documents, and buried what it replaces."""
    scope = {**scope, "kind": prepared.kind, "analysis": prepared.analysis}
    for segment in prepared.segments:
        id = add_segment(connection, scope, segment.documents, segment.chunk_ids)
        add_postings(connection, scope, id, segment.terms, segment.sizes, segment.postings)
        _add_documents(connection, scope, id, segment.documents)


def bury(
    connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID], kinds: Sequence[str] = KINDS
) -> None:
    """Marks them dead wherever they stand."""
    if documents:
        for statement in (LOCK_LIVE, BURY):
            connection.execute(statement, {**scope, "ids": list(documents), "kinds": list(kinds)})


def bury_orphans(
    connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID] | None = None
) -> Sequence[UUID]:
    """Those of the documents, or of the whole collection, whose row is gone, or tells of another number of chunks."""
    found = connection.execute(ORPHANS, {**scope, "ids": None if documents is None else list(documents)})
    orphans = [row[0] for row in found]
    bury(connection, scope, orphans)
    return orphans


def add_segment(connection: Connection, scope: Mapping[str, Any], documents: Iterable[Held], chunk_ids: bytes) -> int:
    """For these documents, whose chunks have these ids, 16 bytes each."""
    languages: Counter[str] = Counter()
    total_length = 0
    for document in documents:
        languages[document.language] += document.n_chunks
        total_length += document.total_length
    totals = {"n_chunks": languages.total(), "total_length": total_length, "languages": Jsonb(languages)}
    row = connection.execute(ADD_SEGMENT, {**scope, **totals, "chunk_ids": chunk_ids}).fetchone()
    return int(row[0]) if row else 0


def add_postings(
    connection: Connection,
    scope: Mapping[str, Any],
    segment: int,
    terms: Sequence[str],
    sizes: Sequence[int],
    postings: bytes,
) -> None:
    """`postings` holds those of one term after the other, `sizes` how many bytes each has."""
    starts = [end - size + 1 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    values = {
        "segment": segment,
        "terms": "\n".join(terms),
        "starts": " ".join(map(str, starts)),
        "sizes": " ".join(map(str, sizes)),
        "postings": postings,
    }
    connection.execute(ADD_POSTINGS, {**scope, **values})


def _document(draft: Draft, version: int) -> SegmentDocument:
    if len(draft.chunks) > MOST_CHUNKS:
        raise DocumentError("publish", f"a document may have at most {MOST_CHUNKS} chunks, got {len(draft.chunks)}")
    language = draft.document.language if draft.document else ""
    chunks = [analyzed(chunk.embedded_text, language) for chunk in draft.chunks]
    return SegmentDocument(draft.id, version, language, _chunk_ids(draft), chunks)


def _chunk_ids(draft: Draft) -> list[UUID]:
    return [chunk.id for chunk in draft.chunks]


def _add_documents(
    connection: Connection, scope: Mapping[str, Any], segment: int, documents: Sequence[DocumentRow]
) -> None:
    values = {
        "segment": segment,
        "firsts": [document.first_local for document in documents],
        "counts": [document.n_chunks for document in documents],
        "lengths": [document.total_length for document in documents],
        "languages": [document.language for document in documents],
        "ids": [document.id for document in documents],
        "versions": [document.version for document in documents],
    }
    connection.execute(ADD_DOCUMENTS, {**scope, **values})
