"""How a hit came about: its rank and its score at every step of a search."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from rag_core.types import Hit, StageReport

Ranks: TypeAlias = Mapping[str, Mapping[UUID, int]]
"""By stage and chunk, from 1."""

STAGES = {"fused": "fuse"}
"""Which stage gave a score, where it is not called as the score is."""

DISPLAY_NAMES = {"fused": "fusion"}
STEPS_AFTER_LEGS = ("fused", "signals", "rerank")
"""The scores that no leg gave."""


def ranks_by_stage(stages: Sequence[StageReport]) -> Ranks:
    return {report.stage: {id: rank for rank, id in enumerate(report.ranking, start=1)} for report in stages}


def explain_hit(hit: Hit, ranks: Ranks) -> dict[str, Any]:
    """Rank and score at each step. A leg that gave a score but no rank did not find the hit within its depth."""
    return {
        DISPLAY_NAMES.get(name, name): {"rank": find_rank(hit, name, ranks), "score": hit.scores[name]}
        for name in score_names([hit])
    }


def score_names(hits: Sequence[Hit]) -> list[str]:
    """Of the scores: legs as they come, then what is behind them."""
    found = dict.fromkeys(name for hit in hits for name in hit.scores)
    return [
        *(name for name in found if name not in STEPS_AFTER_LEGS),
        *(name for name in STEPS_AFTER_LEGS if name in found),
    ]


def find_rank(hit: Hit, name: str, ranks: Ranks) -> int | None:
    return ranks.get(STAGES.get(name, name), {}).get(hit.chunk.id)
