"""Fusion of rankings whose ids are any texts, such as those of another program."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from rag_core.protocols import Ranking
from rag_core.retrieval.fusion import Candidates, merge_rankings

TextRanking: TypeAlias = Sequence[tuple[str, float]]
"""Ids and scores, best first."""


def fuse_text_rankings(
    rankings: Mapping[str, TextRanking], fusion: Callable[[Candidates], Ranking]
) -> list[tuple[str, float]]:
    """The fused ranking, best first; ties by id. `rankings` are given by leg."""
    ids = sorted({id for ranking in rankings.values() for id, _ in ranking})
    uuids = {id: UUID(int=number) for number, id in enumerate(ids)}
    candidates = merge_rankings(
        {leg: [(uuids[id], score) for id, score in ranking] for leg, ranking in rankings.items()}
    )
    return [(ids[uuid.int], score) for uuid, score in fusion(candidates)]
