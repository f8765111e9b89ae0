"""The node that sorts results by a model that reads question and text together."""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Literal

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
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.errors import ConfigError, RagError
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
    """Inputs: `query` and `results`. Outputs: the best `results`, with the reranker's scores.

    If the reranker is missing or fails, the results keep their order, and a warning is logged.
    """

    def __init__(self, config: ReRankerConfig) -> None:
        self.config = config

    @as_node(lambda inputs: {"results": list(inputs.get("results") or ())})
    async def run(self, inputs: Inputs) -> Outputs:
        query, results = str(read_input(inputs, "query")), list(read_input(inputs, "results"))
        texts = [hit_from_result(result).chunk.embedded_text for result in results]
        try:
            scores = await self._score_texts(query, texts) if texts else []
        except RagError as error:
            _log.warning("the node %s keeps the order of its results: %s", self.config.name, error)
            return {"results": results[: self.config.top_k]}
        rescored = [{**result, "score": float(score)} for result, score in zip(results, scores, strict=True)]
        # ties keep their order
        return {"results": sorted(rescored, key=lambda result: -result["score"])[: self.config.top_k]}

    async def _score_texts(self, query: str, texts: Sequence[str]) -> list[float]:
        section = self._select_reranker(load_settings())
        async with aclosing(RemoteModels()) as remote:
            reranker = await to_thread.run_sync(build_reranker, section, remote.pool)
            return await score_texts(reranker, query, texts)

    def _select_reranker(self, settings: Settings) -> RerankerSettings:
        if self.config.model:
            return CrossEncoderReranker(type="cross_encoder", model=self.config.model)
        if self.config.llm_config.model:
            return LlmReranker(type="llm", **self.config.llm_config.model_dump())
        section = find_reranked_retriever(settings.retrieval)
        if section is None:
            raise ConfigError("the profile has no reranker: the node needs a model or a llm_config")
        return section.reranker
