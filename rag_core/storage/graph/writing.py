"""Writes of the graph, in the transaction that publishes the documents.

Mentions and relations are deleted with their document, and an entity with the last document that mentions it.

A transaction that adds mentions locks the rows of their entities, so that none of them is deleted meanwhile. One that
deletes entities does not wait for such locks, but skips locked rows. Two concurrent transactions can thus leave an
entity without mentions, which `repair` deletes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from psycopg import Connection

from rag_core.storage.graph.extraction import extract_graph
from rag_core.types import Chunk, Draft

# Rows are inserted in the order of ids, so two batches with new entities in common wait without a deadlock.
ADD_ENTITIES = """
insert into entities (tenant, collection, id, name, label)
select %(tenant)s, %(collection)s, id, name, label
from unnest(%(ids)s::uuid[], %(names)s::text[], %(labels)s::text[]) as e (id, name, label) order by id
on conflict (tenant, collection, id) do nothing"""
LOCK_ENTITIES = """
select count(*) from (select from entities where tenant = %(tenant)s and collection = %(collection)s
  and id = any(%(ids)s::uuid[]) order by id for key share) locked"""
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
REMOVE_MENTIONS = """
with removed as (
  delete from mentions
  where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[]) returning entity
)
select distinct entity from removed"""
REMOVE_RELATIONS = """
delete from relations
where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])"""
REMOVE_ORPHAN_MENTIONS = """
with removed as (
  delete from mentions m where m.tenant = %(tenant)s and m.collection = %(collection)s
    and (%(ids)s::uuid[] is null or m.document_id = any(%(ids)s::uuid[])) and not exists (
      select from documents d where d.tenant = m.tenant and d.collection = m.collection and d.id = m.document_id)
  returning entity
)
select distinct entity from removed"""
REMOVE_ORPHAN_RELATIONS = """
delete from relations r where r.tenant = %(tenant)s and r.collection = %(collection)s
  and (%(ids)s::uuid[] is null or r.document_id = any(%(ids)s::uuid[])) and not exists (
    select from documents d where d.tenant = r.tenant and d.collection = r.collection and d.id = r.document_id)"""
UNMENTIONED = """
select e.id from entities e where e.tenant = %(tenant)s and e.collection = %(collection)s
  and (%(entities)s::uuid[] is null or e.id = any(%(entities)s::uuid[])) and not exists (
    select from mentions m where m.tenant = e.tenant and m.collection = e.collection and m.entity = e.id)
order by e.id for update skip locked"""
# This checks again: a transaction that had locked the entity before can have added a mention.
REMOVE_ENTITIES = """
delete from entities e where e.tenant = %(tenant)s and e.collection = %(collection)s
  and e.id = any(%(entities)s::uuid[]) and not exists (
    select from mentions m where m.tenant = e.tenant and m.collection = e.collection and m.entity = e.id)"""
DROP = (
    "select from entities where tenant = %(tenant)s and collection = %(collection)s order by id for update",
    "delete from entities where tenant = %(tenant)s and collection = %(collection)s",
    "delete from mentions where tenant = %(tenant)s and collection = %(collection)s",
    "delete from relations where tenant = %(tenant)s and collection = %(collection)s",
)

_NAMES = UUID("b1f1a1d2-6f5e-5d53-8a3c-4b0a54d2c7e9")


@dataclass(frozen=True, slots=True)
class _DocumentGraph:
    """The graph of a document: labels by name, mentions as (name, chunk, count), and the weights of related pairs.

    Each pair is present in both directions.
    """

    labels: Mapping[str, str]
    mentions: Sequence[tuple[str, UUID, int]]
    weights: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class PreparedGraph:
    """The graphs of documents, by document, ready to be stored."""

    documents: Mapping[UUID, _DocumentGraph]

    def restrict_to(self, documents: Iterable[UUID]) -> "PreparedGraph":
        return PreparedGraph({id: self.documents[id] for id in documents if id in self.documents})


EMPTY_GRAPH = PreparedGraph({})


def prepare(drafts: Sequence[Draft]) -> PreparedGraph:
    """Extracts the graphs of the drafts. It does not use the store, so it can run before the transaction."""
    return PreparedGraph(
        {draft.id: _document_graph(draft.chunks) for draft in drafts if draft.chunks and draft.pending}
    )


def publish(
    connection: Connection, scope: Mapping[str, Any], prepared: PreparedGraph, replaced: Sequence[UUID]
) -> None:
    """Stores the graphs, after it has removed those of the `replaced` documents."""
    former_entities = remove(connection, scope, replaced) if replaced else []
    if prepared.documents:
        _add_graphs(connection, scope, prepared)
    remove_entities(connection, scope, former_entities)


def remove(connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID]) -> list[UUID]:
    """Removes the mentions and relations of these documents. Returns their entities, which it does not remove."""
    values = {**scope, "ids": list(documents)}
    connection.execute(REMOVE_RELATIONS, values)
    return [row[0] for row in connection.execute(REMOVE_MENTIONS, values)]


def remove_orphans(connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID] | None = None) -> None:
    """Removes the graphs of documents that are no longer stored, among these or in the entire collection."""
    values = {**scope, "ids": list(documents) if documents is not None else None}
    connection.execute(REMOVE_ORPHAN_RELATIONS, values)
    remove_entities(connection, scope, [row[0] for row in connection.execute(REMOVE_ORPHAN_MENTIONS, values)])


def remove_entities(connection: Connection, scope: Mapping[str, Any], entities: Sequence[UUID] | None = None) -> int:
    """Removes entities that no chunk mentions, among these or in the entire collection. Returns their count.

    It must be the last change of the graph in a transaction: other transactions that add mentions wait for it.
    """
    if entities is not None and not entities:
        return 0
    unmentioned = [row[0] for row in connection.execute(UNMENTIONED, {**scope, "entities": entities})]
    return connection.execute(REMOVE_ENTITIES, {**scope, "entities": unmentioned}).rowcount


def _add_graphs(connection: Connection, scope: Mapping[str, Any], prepared: PreparedGraph) -> None:
    labels = {name: label for graph in prepared.documents.values() for name, label in graph.labels.items()}
    ids = {name: uuid5(_NAMES, name) for name in labels}
    columns = {"ids": list(ids.values()), "names": list(ids), "labels": list(labels.values())}
    _lock_entities(connection, {**scope, **columns})
    graphs = prepared.documents.items()
    mentions = [(ids[name], chunk, id, count) for id, graph in graphs for name, chunk, count in graph.mentions]
    connection.execute(ADD_MENTIONS, {**scope, **_columns(mentions, "entities", "chunks", "documents", "times")})
    relations = [(ids[a], ids[b], id, weight) for id, graph in graphs for (a, b), weight in graph.weights.items()]
    connection.execute(ADD_RELATIONS, {**scope, **_columns(relations, "sources", "targets", "documents", "weights")})


def _lock_entities(connection: Connection, entities: Mapping[str, Any]) -> None:
    """Adds missing entities and locks all of them. Repeats this if one was deleted before it could be locked."""
    locked = -1
    while locked != len(entities["ids"]):
        connection.execute(ADD_ENTITIES, entities)
        row = connection.execute(LOCK_ENTITIES, entities).fetchone()
        locked = int(row[0]) if row else 0


def _document_graph(chunks: Sequence[Chunk]) -> _DocumentGraph:
    graphs = [(chunk, extract_graph(chunk.embedded_text)) for chunk in chunks]
    labels = {name: label for _, graph in reversed(graphs) for name, label in graph.labels.items()}
    mentions = [(name, chunk.id, count) for chunk, graph in graphs for name, count in graph.counts.items()]
    weights: defaultdict[tuple[str, str], float] = defaultdict(float)
    for _, graph in graphs:
        for (a, b), weight in graph.weights.items():
            weights[a, b] += weight
            weights[b, a] += weight
    return _DocumentGraph(labels, mentions, weights)


def _columns(rows: Sequence[tuple[Any, ...]], *names: str) -> dict[str, list[Any]]:
    """The columns of the rows, by name."""
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}
