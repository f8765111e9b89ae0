"""Questions to the graph, in the statements of one snapshot."""

from collections.abc import Sequence
from uuid import UUID

from psycopg.sql import SQL

from rag_core.storage.filters import chunk_filter
from rag_core.storage.graph.extraction import phrases
from rag_core.storage.snapshot import HIDDEN, Snapshot
from rag_core.types import Query

HOPS, FAN, DECAY = 2, 20, 0.5
"""How far it goes from an entity of the question, by how many of its strongest relations each time, and what a step
leaves of its strength."""

HUB, LOOKED_AT = 300, 60
"""What more chunks mention than this stands together with everything: it is found, but no way leads to it or through
it. The strongest relations are looked at for it, so many."""

# A walk from the question's entities along their relations, each taken by its share of all that lead on from there.
# An entity that many chunks mention says less of each (the 1 + ln is that of tf-idf, Manning et al., Introduction to
# Information Retrieval, 6.4.1), and a second mention in a chunk less than the first.
SCORED = """
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
      group by x.target order by sum(x.weight) desc, x.target limit %(looked_at)s) s
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
SEEN = SQL("v.document_id not in (select id from hidden) and {filter}")
AMONG = SQL("v.chunk_id = any(%(ids)s::uuid[])")


async def rank(snapshot: Snapshot, query: Query, k: int) -> list[tuple[UUID, float]]:
    """At most k chunks that mention an entity of the question, or one that is related to it; best first, ties by id.

    Empty when no part of the question is an entity of the collection.
    """
    condition, values = chunk_filter(query.filters, "v.document_id", "v.chunk_id")
    statement = SQL(SCORED).format(hidden=SQL(HIDDEN), passing=SEEN.format(filter=condition))
    rows = await snapshot.connection.execute(statement, {**_walk(snapshot, query), **values, "k": k}, binary=True)
    return [(id, score) async for id, score in rows]


async def score(snapshot: Snapshot, query: Query, ids: Sequence[UUID]) -> list[float]:
    """What `rank` would give them; 0 for a chunk that is not reached."""
    statement = SQL(SCORED).format(hidden=SQL(HIDDEN), passing=AMONG)
    wanted = {**_walk(snapshot, query), "ids": list(ids), "k": len(ids)}
    rows = await snapshot.connection.execute(statement, wanted, binary=True)
    found = {id: value async for id, value in rows}
    return [float(found.get(id, 0.0)) for id in ids]


def _walk(snapshot: Snapshot, query: Query) -> dict[str, object]:
    steps = {"hops": HOPS, "fan": FAN, "decay": DECAY, "hub": HUB, "looked_at": LOOKED_AT}
    return {**snapshot.scope, **steps, "phrases": phrases(query.text)}
