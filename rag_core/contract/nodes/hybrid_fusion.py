"""The node that fuses the results of several searches."""

from typing import Literal

from pydantic import Field

from rag_core.config import FusionWeight
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.protocols import Ranking
from rag_core.retrieval.fusion import Candidates, fuse_rrf, fuse_weighted
from rag_core.wire.result_fusion import fuse_results, merge_results


class HybridFusionConfig(NodeConfig):
    """`weights` are by the names of the searches; without any, all weigh the same. `rrf` ignores them."""

    node_type: Literal["hybrid_fusion"] = "hybrid_fusion"
    strategy: Literal["rrf", "weighted_sum"] = "rrf"
    weights: dict[str, FusionWeight] = Field({})
    rrf_k: int = Field(60, ge=0)
    top_k: int = Field(10, ge=1)


class HybridFusionNode:
    """Inputs: `retrieval_results`, lists of results by the name of the search. Outputs: `fused_results`, best first.

    Each has the fused score, the names of the searches that found it as `sources`, and the content and metadata of the
    first of them. A node that is not enabled returns the results of all searches, one after the other.
    """

    def __init__(self, config: HybridFusionConfig) -> None:
        self.config = config

    @as_node(lambda inputs: {"fused_results": list(merge_results(inputs.get("retrieval_results") or {}).values())})
    async def run(self, inputs: Inputs) -> Outputs:
        fused = fuse_results(read_input(inputs, "retrieval_results"), self._rank)
        return {"fused_results": fused[: self.config.top_k]}

    def _rank(self, candidates: Candidates) -> Ranking:
        if self.config.strategy == "rrf":
            return fuse_rrf(candidates, self.config.rrf_k)
        return fuse_weighted(candidates, self.config.weights)
