"""What the lexical index holds of a collection, under one snapshot."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from psycopg.sql import SQL, Composed

from rag_core.storage.corpus import HIDDEN, Snapshot
from rag_core.storage.lexical.scoring import Chunks, covering

# A row for all segments, one for the dead of each language, one for what is hidden: arrays are read faster than rows.
OVERVIEW = SQL("""
select 'segment', array_agg(id), array_agg(0), array_agg(n_chunks), sum(total_length)::bigint, jsonb_agg(languages)
from lexical_segments where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s
having count(*) > 0
union all
select 'dead', array_agg(segment_id), array_agg(first_local), array_agg(n_chunks), -sum(total_length)::bigint,
  jsonb_build_array(jsonb_build_object(language, -sum(n_chunks)))
from lexical_documents where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and dead
group by language
union all
select 'hidden', array_agg(segment_id), array_agg(first_local), array_agg(n_chunks), 0, '[]'
from lexical_documents where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and not dead
  and document_id in ({hidden})
having count(*) > 0""").format(hidden=SQL(HIDDEN))


@dataclass(frozen=True, slots=True)
class Overview:
    """`segments` has the place of each in `chunks` by its id, ascending.

    `hidden` are ranges of chunks that the asker may not see: (place of the segment, first, count).
    """

    segments: dict[int, int]
    chunks: Chunks
    hidden: Sequence[tuple[int, int, int]]


async def overview(snapshot: Snapshot, statement: Composed = OVERVIEW) -> Overview:
    cursor = await snapshot.connection.execute(statement, snapshot.scope, binary=True)
    ranges: dict[str, list[tuple[int, int, int]]] = {"segment": [], "dead": [], "hidden": []}
    total_length, living = 0, Counter[str]()
    for row, ids, firsts, counts, length, languages in await cursor.fetchall():
        ranges[row] += zip(ids, firsts, counts, strict=True)
        total_length += length
        for each in languages:
            living.update(each)
    sizes = sorted((id, count) for id, _, count in ranges["segment"])
    places = {id: place for place, (id, _) in enumerate(sizes)}
    firsts = np.cumsum([0, *(count for _, count in sizes)], dtype=np.int64)
    dead, hidden = ([(places[id], first, count) for id, first, count in ranges[row]] for row in ("dead", "hidden"))
    return Overview(places, Chunks(firsts, covering(firsts, dead), total_length, +living), hidden)
