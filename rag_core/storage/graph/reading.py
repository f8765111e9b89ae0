"""Searches of the graph, in the statements of one snapshot."""

from collections.abc import Sequence
from uuid import UUID

from psycopg.sql import SQL

from rag_core.storage.filters import chunk_filter
from rag_core.storage.graph.extraction import question_phrases
from rag_core.storage.snapshot import HIDDEN, Snapshot
from rag_core.types import Query

HOPS, FAN, DECAY = 2, 20, 0.5
"""The walk takes at most HOPS steps from an entity of the question, along the FAN strongest relations of each entity. A
step multiplies the strength by DECAY."""

HUB, MAX_CANDIDATES = 300, 60
"""An entity that more than HUB chunks mention is a hub: it is related to nearly everything. The walk can start at a
hub, but takes no step from or to one. Only the MAX_CANDIDATES strongest relations of an entity are considered."""

# A walk from the question's entities along their relations. Each relation passes on the strength by its share of the
# weights of all relations of the entity. The more chunks mention an entity, the less each mention counts: 1 + ln is the
# damping of tf-idf (Manning et al., Introduction to Information Retrieval, 6.4.1). A second mention in a chunk counts
# less than the first.
WALK = """
with recursive hidden as materialized ({hidden}),
reached (entity, hop, strength) as (
  select e.id, 0, 1.0::float8 from entities e
  where e.tenant = %(tenant)s and e.collection = %(collection_id)s and e.name = any(%(phrases)s)
  union all
  select n.target, r.hop + 1, r.strength * %(decay)s * n.share from reached r
  cross join lateral (
    select s.target, s.share from (
      select x.target, sum(x.weight) / sum(sum(x.weight)) over () as share from relations x
      where x.tenant = %(tenant)s and x.collection = %(collection_id)s and x.source = r.entity
        and x.document_id not in (select id from hidden)
      group by x.target order by sum(x.weight) desc, x.target limit %(max_candidates)s) s
    where not exists (
      select from mentions m
      where m.tenant = %(tenant)s and m.collection = %(collection_id)s and m.entity = s.target offset %(hub)s)
    order by s.share desc, s.target limit %(fan)s) n
  where r.hop < %(hops)s and not exists (
    select from mentions m
    where m.tenant = %(tenant)s and m.collection = %(collection_id)s and m.entity = r.entity offset %(hub)s)
),
walked as (select entity, sum(strength) as strength from reached group by entity),
weighed as (
  select w.entity, w.strength / (1 + ln(m.n)) as strength from walked w
  cross join lateral (
    select count(*) as n from mentions m
    where m.tenant = %(tenant)s and m.collection = %(collection_id)s and m.entity = w.entity) m
  where m.n > 0
)
select v.chunk_id, sum(w.strength * v.times / (v.times + 1.0)) as score from weighed w
join mentions v on v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.entity = w.entity
where {passing} group by v.chunk_id order by score desc, v.chunk_id limit %(k)s"""
PASSING = SQL("v.document_id not in (select id from hidden) and {filter}")
WITH_IDS = SQL("v.chunk_id = any(%(ids)s::uuid[])")


async def rank(snapshot: Snapshot, query: Query, k: int) -> list[tuple[UUID, float]]:
    """Returns at most k chunks that mention an entity of the question, or a related one; best first, ties by id.

    Returns none if no part of the question is an entity of the collection.
    """
    condition, values = chunk_filter(query.filters, "v.document_id", "v.chunk_id")
    statement = SQL(WALK).format(hidden=SQL(HIDDEN), passing=PASSING.format(filter=condition))
    parameters = {**_walk_parameters(snapshot, query), **values, "k": k}
    rows = await snapshot.connection.execute(statement, parameters, binary=True)
    return [(id, score) async for id, score in rows]


async def score(snapshot: Snapshot, query: Query, ids: Sequence[UUID]) -> list[float]:
    """The scores that `rank` would assign to these chunks, in the order given; 0 for a chunk that is not reached."""
    statement = SQL(WALK).format(hidden=SQL(HIDDEN), passing=WITH_IDS)
    parameters = {**_walk_parameters(snapshot, query), "ids": list(ids), "k": len(ids)}
    rows = await snapshot.connection.execute(statement, parameters, binary=True)
    scores = {id: score async for id, score in rows}
    return [float(scores.get(id, 0.0)) for id in ids]


def _walk_parameters(snapshot: Snapshot, query: Query) -> dict[str, object]:
    steps = {"hops": HOPS, "fan": FAN, "decay": DECAY, "hub": HUB, "max_candidates": MAX_CANDIDATES}
    return {**snapshot.scope, **steps, "phrases": question_phrases(query.text)}
