"""The bm25 leg: chunks that have words of the question. Rare words weigh most."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from rag_core.protocols import Ranking
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.types import Query


@dataclass(frozen=True, slots=True)
class Bm25Leg:
    """Reads the question in every language of the collection: see `analysis.analyze_question`."""

    corpus: CorpusReader
    parameters: Bm25

    def __post_init__(self) -> None:
        from rag_core.storage.lexical.scoring import compile_all  # numba is slow to import, and only searches need it

        compile_all()

    async def rank(self, query: Query, k: int) -> Ranking:
        """Leaves out chunks that have no word of the question."""
        return await self.corpus.rank_bm25(query, k, self.parameters)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        return await self.corpus.score_bm25(query, chunk_ids, self.parameters)
