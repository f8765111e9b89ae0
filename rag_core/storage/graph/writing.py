"""Documents into the graph, in the transaction that publishes them. A document's part of it goes with the document."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from psycopg import Connection

from rag_core.storage.graph.extraction import Graph, extracted
from rag_core.types import Chunk, Draft

# In the order of ids, so that two batches with new entities in common wait for each other in turn.
ADD_ENTITIES = """
insert into entities (tenant, collection, id, name, label)
select %(tenant)s, %(collection)s, id, name, label
from unnest(%(ids)s::uuid[], %(names)s::text[], %(labels)s::text[]) as e (id, name, label) order by id
on conflict (tenant, collection, id) do nothing"""
ADD_MENTIONS = """
insert into mentions (tenant, collection, entity, chunk_id, document_id, times)
select %(tenant)s, %(collection)s, entity, chunk_id, document_id, times
from unnest(%(entities)s::uuid[], %(chunks)s::uuid[], %(documents)s::uuid[], %(times)s::int[])
  as m (entity, chunk_id, document_id, times)"""
ADD_RELATIONS = """
insert into relations (tenant, collection, source, target, document_id, weight)
select %(tenant)s, %(collection)s, source, target, document_id, weight
from unnest(%(sources)s::uuid[], %(targets)s::uuid[], %(documents)s::uuid[], %(weights)s::float8[])
  as r (source, target, document_id, weight)"""
REMOVE = (
    """delete from mentions
       where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])""",
    """delete from relations
       where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])""",
)
REMOVE_ORPHANS = (
    """delete from mentions m where m.tenant = %(tenant)s and m.collection = %(collection)s
       and (%(ids)s::uuid[] is null or m.document_id = any(%(ids)s::uuid[])) and not exists (
         select from documents d where d.tenant = m.tenant and d.collection = m.collection and d.id = m.document_id)""",
    """delete from relations r where r.tenant = %(tenant)s and r.collection = %(collection)s
       and (%(ids)s::uuid[] is null or r.document_id = any(%(ids)s::uuid[])) and not exists (
         select from documents d where d.tenant = r.tenant and d.collection = r.collection and d.id = r.document_id)""",
)
DROP = (
    "delete from entities where tenant = %(tenant)s and collection = %(collection)s",
    "delete from mentions where tenant = %(tenant)s and collection = %(collection)s",
    "delete from relations where tenant = %(tenant)s and collection = %(collection)s",
)

_NAMES = UUID("b1f1a1d2-6f5e-5d53-8a3c-4b0a54d2c7e9")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What documents say, by document: names and labels, mentions by chunk, related pairs both ways."""

    documents: Mapping[UUID, "_Said"]

    def only(self, documents: Iterable[UUID]) -> "Prepared":
        return Prepared({id: self.documents[id] for id in documents if id in self.documents})


@dataclass(frozen=True, slots=True)
class _Said:
    labels: Mapping[str, str]
    mentions: Sequence[tuple[str, UUID, int]]
    weights: Mapping[tuple[str, str], float]


NOTHING = Prepared({})


def prepared(drafts: Sequence[Draft]) -> Prepared:
    """No input or output: done before the transaction begins."""
    return Prepared({draft.id: _said(draft.chunks) for draft in drafts if draft.chunks and draft.pending})


def publish(connection: Connection, scope: Mapping[str, Any], prepared: Prepared, replaced: Sequence[UUID]) -> None:
    """In place of what `replaced` documents said before."""
    if replaced:
        remove(connection, scope, replaced)
    if not prepared.documents:
        return
    ids = {name: _entity(name) for said in prepared.documents.values() for name in said.labels}
    labels = {name: label for said in prepared.documents.values() for name, label in said.labels.items()}
    names = {"ids": list(ids.values()), "names": list(ids), "labels": [labels[name] for name in ids]}
    connection.execute(ADD_ENTITIES, {**scope, **names})
    said = prepared.documents.items()
    rows = [(ids[name], chunk, id, times) for id, each in said for name, chunk, times in each.mentions]
    connection.execute(ADD_MENTIONS, {**scope, **_columns(rows, "entities", "chunks", "documents", "times")})
    pairs = [(ids[a], ids[b], id, weight) for id, each in said for (a, b), weight in each.weights.items()]
    connection.execute(ADD_RELATIONS, {**scope, **_columns(pairs, "sources", "targets", "documents", "weights")})


def remove(connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID]) -> None:
    for statement in REMOVE:
        connection.execute(statement, {**scope, "ids": list(documents)})


def remove_orphans(connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID] | None = None) -> None:
    """What documents said that are not there any more: those, or any."""
    ids = list(documents) if documents is not None else None
    for statement in REMOVE_ORPHANS:
        connection.execute(statement, {**scope, "ids": ids})


def _said(chunks: Sequence[Chunk]) -> _Said:
    graphs = [(chunk, extracted(chunk.embedded_text)) for chunk in chunks]
    labels = {name: label for _, graph in reversed(graphs) for name, label in graph.labels.items()}
    mentions = [(name, chunk.id, times) for chunk, graph in graphs for name, times in graph.times.items()]
    return _Said(labels, mentions, _both_ways(graph for _, graph in graphs))


def _both_ways(graphs: Iterable[Graph]) -> dict[tuple[str, str], float]:
    weights: defaultdict[tuple[str, str], float] = defaultdict(float)
    for graph in graphs:
        for (a, b), weight in graph.weights.items():
            weights[a, b] += weight
            weights[b, a] += weight
    return weights


def _columns(rows: Sequence[tuple[Any, ...]], *names: str) -> dict[str, list[Any]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _entity(name: str) -> UUID:
    return uuid5(_NAMES, name)
