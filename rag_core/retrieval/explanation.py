"""The explanation of a hit: its rank and its score at every step of the search."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from rag_core.retrieval.variants import VARIANT_STAGE
from rag_core.types import Hit, StageReport

Ranks: TypeAlias = Mapping[str, Mapping[UUID, int]]
"""Ranks from 1, by stage and chunk."""

SCORE_STAGES = {"fused": "fuse"}
"""The stage of a score, if it has another name than the score."""

DISPLAY_NAMES = {"fused": "fusion"}
"""The name that users see, if it differs from that of the score."""

STEPS_AFTER_LEGS = ("fused", "variants", "signals", "rerank")
"""The scores of steps after the legs, in the order of the steps."""


def ranks_by_stage(stages: Sequence[StageReport]) -> Ranks:
    """Ignores the stages of other variants than the question."""
    own = [report for report in stages if not report.parent.startswith(VARIANT_STAGE)]
    return {report.stage: {id: rank for rank, id in enumerate(report.ranking, start=1)} for report in own}


def explain_hit(hit: Hit, ranks: Ranks) -> dict[str, Any]:
    """Rank and score at each step. The rank is None if a leg scored the hit, but did not find it within its depth."""
    return {
        DISPLAY_NAMES.get(name, name): {"rank": find_rank(hit, name, ranks), "score": hit.scores[name]}
        for name in score_names([hit])
    }


def score_names(hits: Sequence[Hit]) -> list[str]:
    """The names of all scores of the hits: first the legs, in the order of occurrence, then the later steps."""
    names = dict.fromkeys(name for hit in hits for name in hit.scores)
    legs = [name for name in names if name not in STEPS_AFTER_LEGS]
    return [*legs, *(name for name in STEPS_AFTER_LEGS if name in names)]


def find_rank(hit: Hit, name: str, ranks: Ranks) -> int | None:
    return ranks.get(SCORE_STAGES.get(name, name), {}).get(hit.chunk.id)
