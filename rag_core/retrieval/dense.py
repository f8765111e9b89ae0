"""The dense leg: chunks whose vectors are nearest to the question's."""

from dataclasses import dataclass

from rag_core.protocols import QueryEmbedder
from rag_core.stage import stage
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Query, Space


@dataclass(frozen=True, slots=True)
class DenseRetriever:
    corpus: CorpusReader
    embedder: QueryEmbedder
    space: Space

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        """Scores are cosines. The question is encoded before the snapshot opens."""
        async with stage("embed"):
            (vector,) = await self.embedder.embed([query.text])
        async with self.corpus.snapshot(query):
            async with stage("dense"):
                ranking = await self.corpus.nearest(query, vector, self.space, k)
            async with stage("fetch"):
                return await self.corpus.hits(query, "dense", ranking)
