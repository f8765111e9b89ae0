"""A retriever that searches the variants of a question and fuses their rankings."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from uuid import UUID

from rag_core.protocols import OuterRetriever, Retriever
from rag_core.stage import attempt, stage
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Query, Variant

VARIANT_STAGE = "variant"
"""The first word of the stages in which the variants besides the question are searched."""


def with_variants(retriever: Retriever, corpus: CorpusReader) -> Retriever:
    """A retriever that also searches variants, below the outer retrievers: a reranker reads the fused hits once."""
    if isinstance(retriever, OuterRetriever) and is_dataclass(retriever):
        return replace(retriever, retriever=with_variants(retriever.retriever, corpus))
    return FusedVariants(corpus, retriever)


@dataclass(frozen=True, slots=True)
class FusedVariants:
    """Adds up the scores of each variant, scaled to [0, 1] over its `depth` hits, times the variant's weight.

    The variants besides the question are searched in stages such as `variant previous`; one that fails is left out.
    """

    corpus: CorpusReader
    retriever: Retriever
    depth: int = 100

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        """Hits that the question did not find have no scores of its legs."""
        if len(query.variants) < 2:
            return await self.retriever.retrieve(query, k)
        depth = max(k, self.depth)
        async with self.corpus.reading(query):
            rankings = await asyncio.gather(*(self._search(query, variant, depth) for variant in query.variants))
            async with stage("variants") as running:
                hits = fuse_variants(query.variants, rankings)[:k]
                running.ranking = tuple(hit.chunk.id for hit in hits)
        return hits

    async def _search(self, query: Query, variant: Variant, depth: int) -> list[Hit]:
        search = self.retriever.retrieve(replace(query, text=variant.text, variants=()), depth)
        if variant.name == "question":
            return await search
        hits = await attempt(
            f"{VARIANT_STAGE} {variant.name}",
            search,
            otherwise=[],
            ranking=lambda found: (hit.chunk.id for hit in found),
        )
        return [replace(hit, scores={}) for hit in hits]


def fuse_variants(variants: Sequence[Variant], rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Fuses one ranking per variant; best first, ties by chunk id. The result's hits are of the first that found them.

    A chunk that a variant did not find scores 0 there.
    """
    hits: dict[UUID, Hit] = {}
    scores: dict[UUID, float] = {}
    for variant, ranking in zip(variants, rankings, strict=True):
        for id, scaled in scale_scores(ranking).items():
            scores[id] = scores.get(id, 0.0) + variant.weight * scaled
        for hit in ranking:
            hits.setdefault(hit.chunk.id, hit)
    ids = sorted(scores, key=lambda id: (-scores[id], id))
    return [hits[id].rescored("variants", scores[id]) for id in ids]


def scale_scores(ranking: Sequence[Hit]) -> Mapping[UUID, float]:
    """The scores by chunk, with the lowest as 0 and the highest as 1; all are 1 if they are equal."""
    if not ranking:
        return {}
    low, high = min(hit.score for hit in ranking), max(hit.score for hit in ranking)
    return {hit.chunk.id: (hit.score - low) / (high - low) if high > low else 1.0 for hit in ranking}
