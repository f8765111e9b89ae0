"""The node that sorts results by a model that reads question and text together."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Literal

from anyio import to_thread
from pydantic import Field

from rag_core.config import (
    CrossEncoderReranker,
    LlmReranker,
    RerankerSettings,
    Settings,
    find_reranked_retriever,
)
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, read_input, run_node
from rag_core.errors import ConfigError
from rag_core.retrieval.reranked import score_texts
from rag_core.settings import load_settings
from rag_core.wire.result_dicts import hit_from_result
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.reranking import build_reranker

_log = logging.getLogger(__name__)


class ReRankerConfig(NodeConfig):
    """`model` is a cross-encoder. Without one, the language model of `llm_config` grades, or the profile's reranker."""

    node_type: Literal["re_ranker"] = "re_ranker"
    model: str = ""
    llm_config: LLMConfig = LLMConfig()
    top_k: int = Field(10, ge=1)


class ReRankerNode:
    """In: `query` and `results`. Out: the best `results`, with the reranker's scores.

    A node that is not enabled, or whose reranker is missing or fails, returns the first results; a failure is logged.
    """

    def __init__(self, config: ReRankerConfig) -> None:
        self.config = config

    async def run(self, inputs: Inputs) -> Outputs:
        first = list(inputs.get("results") or ())[: self.config.top_k]
        try:
            return await run_node(self.config, partial(self._rerank, inputs), {"results": first})
        except RuntimeError as error:
            _log.warning("the results keep their order: %s", error)
            return {"results": first}

    async def _rerank(self, inputs: Inputs) -> Outputs:
        query, results = str(read_input(inputs, "query")), read_input(inputs, "results")
        section = self._select_reranker(load_settings())
        texts = [hit_from_result(result).chunk.embedded_text for result in results]
        async with aclosing(RemoteModels()) as remote:
            reranker = await to_thread.run_sync(build_reranker, section, remote.pool)
            scores = await score_texts(reranker, query, texts) if texts else []
        return {"results": _sort_results(results, scores)[: self.config.top_k]}

    def _select_reranker(self, settings: Settings) -> RerankerSettings:
        if self.config.model:
            return CrossEncoderReranker(type="cross_encoder", model=self.config.model)
        if self.config.llm_config.model:
            return LlmReranker(type="llm", **self.config.llm_config.model_dump())
        section = find_reranked_retriever(settings.retrieval)
        if section is None:
            raise ConfigError("the profile has no reranker: the node needs a model or a llm_config")
        return section.reranker


def _sort_results(results: Sequence[Mapping[str, Any]], scores: Sequence[float]) -> list[dict[str, Any]]:
    """The results with these scores, best first; ties keep their order."""
    rescored = [{**result, "score": float(score)} for result, score in zip(results, scores, strict=True)]
    return sorted(rescored, key=lambda result: -result["score"])
