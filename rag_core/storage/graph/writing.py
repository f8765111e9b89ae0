"""Documents into the graph, in the transaction that publishes them. A document's part of it goes with the document,
and an entity with the last that mentions it.

Who mentions entities holds their rows, so that none is removed meanwhile; who removes them waits for no such holder,
but leaves what is held. What two transactions at once leave so, is removed by `repair`.
"""

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
HOLD_ENTITIES = """
select count(*) from (select from entities where tenant = %(tenant)s and collection = %(collection)s
  and id = any(%(ids)s::uuid[]) order by id for key share) held"""
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
with gone as (
  delete from mentions
  where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[]) returning entity
)
select distinct entity from gone"""
REMOVE_RELATIONS = """
delete from relations
where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])"""
REMOVE_ORPHAN_MENTIONS = """
with gone as (
  delete from mentions m where m.tenant = %(tenant)s and m.collection = %(collection)s
    and (%(ids)s::uuid[] is null or m.document_id = any(%(ids)s::uuid[])) and not exists (
      select from documents d where d.tenant = m.tenant and d.collection = m.collection and d.id = m.document_id)
  returning entity
)
select distinct entity from gone"""
REMOVE_ORPHAN_RELATIONS = """
delete from relations r where r.tenant = %(tenant)s and r.collection = %(collection)s
  and (%(ids)s::uuid[] is null or r.document_id = any(%(ids)s::uuid[])) and not exists (
    select from documents d where d.tenant = r.tenant and d.collection = r.collection and d.id = r.document_id)"""
UNMENTIONED = """
select e.id from entities e where e.tenant = %(tenant)s and e.collection = %(collection)s
  and (%(entities)s::uuid[] is null or e.id = any(%(entities)s::uuid[])) and not exists (
    select from mentions m where m.tenant = e.tenant and m.collection = e.collection and m.entity = e.id)
order by e.id for update skip locked"""
# Looks again: whoever held an entity before it was locked has mentioned it by now.
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
    gone = remove(connection, scope, replaced) if replaced else []
    if prepared.documents:
        _add(connection, scope, prepared)
    remove_entities(connection, scope, gone)


def remove(connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID]) -> list[UUID]:
    """Gives the entities that they mentioned; these stay."""
    values = {**scope, "ids": list(documents)}
    connection.execute(REMOVE_RELATIONS, values)
    return [row[0] for row in connection.execute(REMOVE_MENTIONS, values)]


def remove_orphans(connection: Connection, scope: Mapping[str, Any], documents: Sequence[UUID] | None = None) -> None:
    """What documents said that are not there any more: those, or any."""
    values = {**scope, "ids": list(documents) if documents is not None else None}
    connection.execute(REMOVE_ORPHAN_RELATIONS, values)
    remove_entities(connection, scope, [row[0] for row in connection.execute(REMOVE_ORPHAN_MENTIONS, values)])


def remove_entities(connection: Connection, scope: Mapping[str, Any], entities: Sequence[UUID] | None = None) -> int:
    """How many of them, or of all, had no mention left. The last that a transaction does to the graph: who adds to it
    may wait for this one from here on."""
    if entities is not None and not entities:
        return 0
    found = [row[0] for row in connection.execute(UNMENTIONED, {**scope, "entities": entities})]
    return connection.execute(REMOVE_ENTITIES, {**scope, "entities": found}).rowcount


def _add(connection: Connection, scope: Mapping[str, Any], prepared: Prepared) -> None:
    ids = {name: _entity(name) for said in prepared.documents.values() for name in said.labels}
    labels = {name: label for said in prepared.documents.values() for name, label in said.labels.items()}
    columns = {"ids": list(ids.values()), "names": list(ids), "labels": [labels[name] for name in ids]}
    _hold(connection, {**scope, **columns})
    said = prepared.documents.items()
    rows = [(ids[name], chunk, id, times) for id, each in said for name, chunk, times in each.mentions]
    connection.execute(ADD_MENTIONS, {**scope, **_columns(rows, "entities", "chunks", "documents", "times")})
    pairs = [(ids[a], ids[b], id, weight) for id, each in said for (a, b), weight in each.weights.items()]
    connection.execute(ADD_RELATIONS, {**scope, **_columns(pairs, "sources", "targets", "documents", "weights")})


def _hold(connection: Connection, entities: Mapping[str, Any]) -> None:
    """Adds those that are not there. One that was there may be removed before it is held: then it is added again."""
    held = -1
    while held != len(entities["ids"]):
        connection.execute(ADD_ENTITIES, entities)
        row = connection.execute(HOLD_ENTITIES, entities).fetchone()
        held = int(row[0]) if row else 0


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
