"""Searches of the lexical index by SPLADE's weighted terms, in the statements of one snapshot."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import numpy as np
from psycopg.sql import SQL

from rag_core.errors import SpaceError
from rag_core.storage.lexical.kinds import SPLADE
from rag_core.storage.lexical.overview import overview_statement, read_overview
from rag_core.storage.lexical.packing import packing_sql
from rag_core.storage.lexical.reading import (
    Scorer,
    find_uncached_terms,
    rank_chunks,
    read_postings,
    score_ids,
    with_kind,
)
from rag_core.storage.lexical.segment import WEIGHT_STEP
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.storage.lexical.splade_scoring import find_best, score_chunks
from rag_core.storage.snapshot import Snapshot
from rag_core.types import Query, TermWeights

# Segments with the weights of another model count as dead.
OVERVIEW = overview_statement(
    SQL("""
select 'dead', {ranges}, 0, '[]', null, null
from lexical_segments where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s
  and analysis <> %(analysis)s
having count(*) > 0""").format(ranges=packing_sql("id", "0", "n_chunks"))
)
HAS_CHUNKS = """
select exists (select from documents where tenant = %(tenant)s and collection = %(collection_id)s and n_chunks > 0)"""


async def rank(
    snapshot: Snapshot, cache: SegmentCache, query: Query, weights: TermWeights, fingerprint: str, k: int
) -> list[tuple[UUID, float]]:
    """Returns at most k chunks that have a term of the question, best first; ties by id.

    `weights` are those of the question. `fingerprint` is that of the model that produced them.
    """
    snapshot = with_kind(snapshot, SPLADE, analysis=fingerprint)
    scorer = await _read_scorer(snapshot, cache, query, weights)
    return await rank_chunks(snapshot, cache, scorer, query, k)


async def score(
    snapshot: Snapshot,
    cache: SegmentCache,
    query: Query,
    weights: TermWeights,
    fingerprint: str,
    ids: Sequence[UUID],
) -> list[float]:
    """The scores that `rank` would assign to these chunks, in the order given.

    A chunk that has no term of the question has 0, and one without weights has NaN.
    """
    snapshot = with_kind(snapshot, SPLADE, analysis=fingerprint)
    scorer = await _read_scorer(snapshot, cache, query, weights)
    return await score_ids(snapshot, cache, scorer, ids, missing=np.nan)


async def _read_scorer(snapshot: Snapshot, cache: SegmentCache, query: Query, weights: TermWeights) -> Scorer:
    """Reads the overview and the postings that score the question, once per snapshot.

    Raises SpaceError if the collection has documents, but no weights of this model.
    """

    async def read() -> Scorer:
        overview = await read_overview(snapshot, find_uncached_terms(snapshot, cache, weights.terms), OVERVIEW)
        if not overview.chunks.living:
            cursor = await snapshot.connection.execute(HAS_CHUNKS, snapshot.scope)
            if await cursor.fetchone() == (True,):
                raise SpaceError(
                    f"collection {query.collection!r} holds no term weights of the profile's SPLADE model: ingest it "
                    "again with this profile"
                )
        postings = await read_postings(snapshot, cache, overview, weights.terms, SPLADE)
        steps = weights.weights.astype(np.float64) * WEIGHT_STEP
        return Scorer(
            overview=overview,
            find_best=partial(find_best, overview.chunks, postings, steps),
            score=partial(score_chunks, postings, steps),
        )

    return await snapshot.once((SPLADE, query.text, snapshot.scope["analysis"]), read)
