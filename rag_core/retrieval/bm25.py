"""The bm25 leg: chunks that have the question's words, the rare ones first of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from rag_core.protocols import Ranking
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.types import Query


@dataclass(frozen=True, slots=True)
class Bm25Leg:
    """The question is read in every language that the collection has documents of: see `analysis.read_question`."""

    corpus: CorpusReader
    parameters: Bm25

    def __post_init__(self) -> None:
        from rag_core.storage.lexical.scoring import compile_all  # imports numba: not for who only lists or ingests

        compile_all()

    async def rank(self, query: Query, k: int) -> Ranking:
        """A chunk that has none of the question's words is not ranked."""
        return await self.corpus.bm25(query, k, self.parameters)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        return await self.corpus.bm25_scores(query, chunk_ids, self.parameters)
