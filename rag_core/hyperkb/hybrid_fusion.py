"""The fusion of sparse and dense results."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rag_core.protocols import Ranking
from rag_core.retrieval.fusion import Candidates, fuse_distribution, fuse_rrf, fuse_unscaled, fuse_weighted
from rag_core.wire.result_fusion import fuse_results

SPARSE, DENSE = "sparse", "dense"


@dataclass(frozen=True)
class HybridFusion:
    """Reciprocal rank fusion by `k`, or a sum `alpha` * sparse + (1 - `alpha`) * dense.

    The sum is of z-scores (`distribution`) or of scores (`weighted`). `normalize` scales the scores to [0, 1] before.
    """

    method: Literal["rrf", "weighted", "distribution"] = "rrf"
    k: Annotated[int, Field(ge=0)] = 60
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    normalize: bool = True

    def fuse(
        self, sparse: Sequence[Mapping[str, Any]], dense: Sequence[Mapping[str, Any]], top_k: int = 10
    ) -> list[dict[str, Any]]:
        """The best results, each once with the fused score and its `sources`. Both inputs must be best first."""
        return fuse_results({SPARSE: sparse, DENSE: dense}, self._rank)[:top_k]

    def _rank(self, candidates: Candidates) -> Ranking:
        weights = {SPARSE: self.alpha, DENSE: 1 - self.alpha}
        match self.method:
            case "rrf":
                return fuse_rrf(candidates, self.k)
            case "distribution":
                return fuse_distribution(candidates, weights)
            case "weighted":
                return (fuse_weighted if self.normalize else fuse_unscaled)(candidates, weights)
