"""The node that measures results against the grades of a dataset."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.evaluation.metrics import average_precision, ndcg, recall, reciprocal_rank, unique_ids


class RetrievalEvaluationConfig(NodeConfig):
    """`recall_at_k` are the ranks up to which recall is measured. nDCG is measured up to `ndcg_at`."""

    node_type: Literal["retrieval_evaluation"] = "retrieval_evaluation"
    recall_at_k: tuple[int, ...] = Field((5, 10), min_length=1)
    ndcg_at: int = Field(10, ge=1)


class RetrievalEvaluationNode:
    """Inputs: `queries` of DatasetNode, and lists of `results` by `query_id`. Outputs: `evaluations` and `metrics`.

    Each query has an evaluation; its metrics are 0 without results. `metrics` are the means. A result counts under
    its id if the query grades that, else under its `source`.
    """

    def __init__(self, config: RetrievalEvaluationConfig) -> None:
        self.config = config

    @as_node(lambda _: {"evaluations": [], "metrics": {}})
    async def run(self, inputs: Inputs) -> Outputs:
        queries, results = read_input(inputs, "queries"), read_input(inputs, "results")
        evaluations = [
            {
                "query_id": query["query_id"],
                "metrics": self._measure(results.get(query["query_id"], ()), query["relevant"]),
            }
            for query in queries
        ]
        return {"evaluations": evaluations, "metrics": _average([evaluation["metrics"] for evaluation in evaluations])}

    def _measure(self, results: Sequence[Mapping[str, Any]], grades: Mapping[str, int]) -> dict[str, Any]:
        ranking = rank_results(results, grades)
        return {
            "recall_at_k": {str(k): recall(ranking, grades, k) for k in self.config.recall_at_k},
            "mrr": reciprocal_rank(ranking, grades),
            "ndcg": ndcg(ranking, grades, self.config.ndcg_at),
            "map": average_precision(ranking, grades),
        }


def rank_results(results: Sequence[Mapping[str, Any]], grades: Mapping[str, int]) -> list[str]:
    """The ids that count for the results: their own if they are graded, else those of their sources."""
    ids = ((str(result["id"]), str((result.get("metadata") or {}).get("source", ""))) for result in results)
    return unique_ids(id if id in grades else source or id for id, source in ids)


def _average(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not metrics:
        return {}
    recalls = {k: fmean(values["recall_at_k"][k] for values in metrics) for k in metrics[0]["recall_at_k"]}
    means = {name: fmean(values[name] for values in metrics) for name in ("mrr", "ndcg", "map")}
    return {"recall_at_k": recalls, **means}
