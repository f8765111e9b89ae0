"""The node that fuses the results of several searches."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from pydantic import Field

from rag_core.config import FusionWeight
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, read_input, run_node
from rag_core.protocols import Ranking
from rag_core.retrieval.fusion import Candidates, fuse_rrf, fuse_weighted
from rag_core.retrieval.text_ids import fuse_text_rankings

Results: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
"""The results of each search, best first, by the search's name."""


class HybridFusionConfig(NodeConfig):
    """`weights` are by the names of the searches; without any, all weigh the same. `rrf` ignores them."""

    node_type: Literal["hybrid_fusion"] = "hybrid_fusion"
    strategy: Literal["rrf", "weighted_sum"] = "rrf"
    weights: dict[str, FusionWeight] = Field({})
    rrf_k: int = Field(60, ge=0)
    top_k: int = Field(10, ge=1)


class HybridFusionNode:
    """In: `retrieval_results`, lists of results by the name of the search. Out: `fused_results`, best first.

    Each has the fused score, the names of the searches that found it as `sources`, and the content and metadata of the
    first of them. A node that is not enabled returns the results of all searches, one after the other.
    """

    def __init__(self, config: HybridFusionConfig) -> None:
        self.config = config

    async def run(self, inputs: Inputs) -> Outputs:
        unfused = list(_merge_results(inputs.get("retrieval_results") or {}).values())
        return await run_node(self.config, partial(self._fuse, inputs), {"fused_results": unfused})

    async def _fuse(self, inputs: Inputs) -> Outputs:
        results: Results = read_input(inputs, "retrieval_results")
        rankings = {
            name: [(str(result["id"]), float(result.get("score", 0.0))) for result in ranked]
            for name, ranked in results.items()
        }
        merged, fused = _merge_results(results), fuse_text_rankings(rankings, self._rank)
        return {"fused_results": [{**merged[id], "score": score} for id, score in fused[: self.config.top_k]]}

    def _rank(self, candidates: Candidates) -> Ranking:
        if self.config.strategy == "rrf":
            return fuse_rrf(candidates, self.config.rrf_k)
        return fuse_weighted(candidates, self.config.weights)


def _merge_results(results: Results) -> dict[str, dict[str, Any]]:
    """Each result once, by id, with the names of the searches that found it."""
    merged: dict[str, dict[str, Any]] = {}
    for name, ranked in results.items():
        for result in ranked:
            first = {key: value for key, value in result.items() if key != "retriever"}
            known = merged.setdefault(str(result["id"]), {**first, "sources": []})
            known["sources"] = list(dict.fromkeys((*known["sources"], name)))
    return merged
