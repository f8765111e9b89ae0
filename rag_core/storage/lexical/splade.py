"""Questions to the weighted terms of SPLADE, in the statements of one snapshot."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import numpy as np
from psycopg.sql import SQL

from rag_core.errors import SpaceError
from rag_core.storage.lexical.kinds import SPLADE
from rag_core.storage.lexical.overview import overview, overview_statement
from rag_core.storage.lexical.packing import packed_columns
from rag_core.storage.lexical.reading import Asked, of_kind, places_of, postings, ranked, unread
from rag_core.storage.lexical.segment import WEIGHT_STEP
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.storage.lexical.splade_scoring import best, scores
from rag_core.storage.snapshot import Snapshot
from rag_core.types import Query, TermWeights

# What another model weighed is dead for this one.
WEIGHED = overview_statement(
    SQL("""
select 'dead', {ranges}, 0, '[]', null, null
from lexical_segments where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s
  and analysis <> %(analysis)s
having count(*) > 0""").format(ranges=packed_columns("id", "0", "n_chunks"))
)
WEIGHABLE = """
select exists (select from documents where tenant = %(tenant)s and collection = %(collection_id)s and n_chunks > 0)"""


async def rank(
    snapshot: Snapshot, cache: SegmentCache, query: Query, weights: TermWeights, fingerprint: str, k: int
) -> list[tuple[UUID, float]]:
    """At most k chunks that have a term of the question, best first; ties by id."""
    snapshot = of_kind(snapshot, SPLADE, analysis=fingerprint)
    return await ranked(snapshot, cache, await _asked(snapshot, cache, query, weights), query, k)


async def score(
    snapshot: Snapshot,
    cache: SegmentCache,
    query: Query,
    weights: TermWeights,
    fingerprint: str,
    ids: Sequence[UUID],
) -> list[float]:
    """What `rank` would give them; 0 for a chunk that has no term of the question, NaN for one without weights."""
    snapshot, given = of_kind(snapshot, SPLADE, analysis=fingerprint), np.full(len(ids), np.nan)
    asked = await _asked(snapshot, cache, query, weights)
    rows, segments, locals = await places_of(snapshot, cache, asked.overview, ids)
    given[rows] = asked.scores(segments, locals)
    return [float(each) for each in given]


async def _asked(snapshot: Snapshot, cache: SegmentCache, query: Query, weights: TermWeights) -> Asked:
    """Read once a snapshot."""
    key = SPLADE, query.text, snapshot.scope["analysis"]
    return await snapshot.once(key, partial(_weighed, snapshot, cache, query, weights))


async def _weighed(snapshot: Snapshot, cache: SegmentCache, query: Query, weights: TermWeights) -> Asked:
    found = await overview(snapshot, unread(snapshot, cache, weights.terms), WEIGHED)
    if not found.chunks.living and await _weighable(snapshot):
        raise SpaceError(
            f"collection {query.collection!r} holds no term weights of the profile's SPLADE model: ingest it again "
            "with this profile"
        )
    lists = await postings(snapshot, cache, found, weights.terms, SPLADE)
    steps = weights.weights.astype(np.float64) * WEIGHT_STEP
    return Asked(found, partial(best, found.chunks, lists, steps), partial(scores, lists, steps))


async def _weighable(snapshot: Snapshot) -> bool:
    row = await (await snapshot.connection.execute(WEIGHABLE, snapshot.scope)).fetchone()
    return row == (True,)
