"""The node that measures the quality of a response."""

from contextlib import aclosing
from typing import Literal

import numpy as np
from anyio import to_thread

from rag_core.contract.nodes.judging import open_judge, read_answer
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.contract.pre_retrieval import get_query_embedding
from rag_core.evaluation.answers import token_f1
from rag_core.settings import load_settings
from rag_core.wiring.models import RemoteModels


class AnswerQualityEvaluationConfig(NodeConfig):
    """The language model of `llm_config` judges the faithfulness, or without one the profile's judge."""

    node_type: Literal["answer_quality_evaluation"] = "answer_quality_evaluation"
    llm_config: LLMConfig = LLMConfig()


class AnswerQualityEvaluationNode:
    """Inputs: `query`, `response`, `context`, and right answers as `references`. Outputs: `answer_quality`.

    All are from 0 to 1. `faithfulness` is the judge's score of the response by its context. `relevance` is the cosine
    of question and response, and `completeness` the F1 of its words and those of the best reference. Both are rules
    that understand no meaning. `completeness` is None without references.
    """

    def __init__(self, config: AnswerQualityEvaluationConfig) -> None:
        self.config = config

    @as_node(lambda _: {"answer_quality": {}})
    async def run(self, inputs: Inputs) -> Outputs:
        settings, query, references = load_settings(), str(read_input(inputs, "query")), inputs.get("references")
        answer, passages = read_answer(inputs, settings)
        async with aclosing(RemoteModels()) as remote:
            judge = await open_judge(self.config.llm_config, settings, remote)
            verdict = await judge.judge(answer, passages)
        quality = {
            "faithfulness": verdict.score,
            "relevance": await to_thread.run_sync(_compare_texts, query, answer.text),
            "completeness": token_f1(answer.text, references) if references else None,
        }
        return {"answer_quality": quality}


def _compare_texts(one: str, other: str) -> float:
    """The cosine of two texts, 0 if it is negative or one of them is empty."""
    if not (one.strip() and other.strip()):
        return 0.0
    return max(0.0, float(np.dot(get_query_embedding(one), get_query_embedding(other))))
