"""How rare the words of a question are among the chunks of a collection."""

from collections.abc import Mapping
from dataclasses import replace

from rag_core.storage.lexical.kinds import WORDS
from rag_core.storage.lexical.reading import of_kind, read_words
from rag_core.storage.lexical.scoring import weights
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.storage.snapshot import Snapshot
from rag_core.types import Query


async def idf(snapshot: Snapshot, cache: SegmentCache, query: Query) -> Mapping[str, float]:
    """Lucene's, of every term that the question has in a language of the collection; greatest where no chunk has it."""
    snapshot = of_kind(snapshot, WORDS)
    found, question, lists = await read_words(snapshot, cache, query.text)
    once = replace(question, counts=dict.fromkeys(question.counts, 1))
    return dict(zip(once.counts, weights(found.chunks, lists, once).tolist(), strict=True))
