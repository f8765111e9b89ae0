"""The inverse document frequencies of a question's terms in a collection."""

from collections.abc import Mapping
from dataclasses import replace

from rag_core.storage.lexical.kinds import WORDS
from rag_core.storage.lexical.reading import read_question_postings, with_kind
from rag_core.storage.lexical.scoring import term_weights
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.storage.snapshot import Snapshot
from rag_core.types import Query


async def idf(snapshot: Snapshot, cache: SegmentCache, query: Query) -> Mapping[str, float]:
    """Lucene's idf of each of the question's terms, in all languages of the collection.

    It is highest for a term that no chunk has.
    """
    snapshot = with_kind(snapshot, WORDS)
    overview, question, postings = await read_question_postings(snapshot, cache, query.text)
    question = replace(question, counts=dict.fromkeys(question.counts, 1))
    return dict(zip(question.counts, term_weights(overview.chunks, postings, question).tolist(), strict=True))
