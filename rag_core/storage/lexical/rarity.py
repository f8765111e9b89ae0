"""How rare the words of a question are among the chunks of a collection."""

from collections.abc import Mapping
from dataclasses import replace

from rag_core.storage.corpus import Snapshot
from rag_core.storage.lexical.analysis import read_question
from rag_core.storage.lexical.kinds import WORDS
from rag_core.storage.lexical.reading import OVERVIEW, lists, of_kind, overview
from rag_core.storage.lexical.scoring import joined, weights
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.types import Query


async def idf(snapshot: Snapshot, cache: SegmentCache, query: Query) -> Mapping[str, float]:
    """Lucene's, of every term that the question has in a language of the collection; greatest where no chunk has it."""
    snapshot = of_kind(snapshot, WORDS)
    found = await overview(snapshot, OVERVIEW)
    question = read_question(query.text, list(found.chunks.languages))
    once = replace(question, counts=dict.fromkeys(question.counts, 1))
    postings = joined(await lists(snapshot, cache, found.segments, list(once.counts)))
    return dict(zip(once.counts, weights(found.chunks, postings, once).tolist(), strict=True))
