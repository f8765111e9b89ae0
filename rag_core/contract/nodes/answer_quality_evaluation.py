"""The node that measures the quality of a response."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Literal

import numpy as np
from anyio import to_thread

from rag_core.answering.judging.statements import premise
from rag_core.config import Endpoint
from rag_core.contract.nodes.judging import open_judge, read_answer
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.contract.pre_retrieval import get_query_embedding
from rag_core.evaluation.answers import token_f1
from rag_core.evaluation.rubric import load_rubric
from rag_core.evaluation.rubric_judge import GradedAnswer, RubricJudge
from rag_core.settings import load_settings
from rag_core.types import Answer, Passage
from rag_core.wiring.endpoint import build_client
from rag_core.wiring.models import RemoteModels


class AnswerQualityEvaluationConfig(NodeConfig):
    """The language model of `llm_config` grades by the rubric of `rag evaluate --judge`, or without one rules do."""

    node_type: Literal["answer_quality_evaluation"] = "answer_quality_evaluation"
    llm_config: LLMConfig = LLMConfig()


class AnswerQualityEvaluationNode:
    """Inputs: `query`, `response`, `context`, and right answers as `references`. Outputs: `answer_quality`.

    It has `faithfulness`, `relevance` and `completeness`, all from 0 to 1. By the rules, `faithfulness` is the score of
    the profile's judge, `relevance` the cosine of question and response, and `completeness` the F1 of its words and
    those of the best reference. `completeness` is None without references.
    """

    def __init__(self, config: AnswerQualityEvaluationConfig) -> None:
        self.config = config

    @as_node(lambda _: {"answer_quality": {}})
    async def run(self, inputs: Inputs) -> Outputs:
        query, references = str(read_input(inputs, "query")), list(inputs.get("references") or ())
        answer, passages = read_answer(inputs, load_settings())
        measure = self._grade if self.config.llm_config.model else self._apply_rules
        return {"answer_quality": await measure(query, answer, passages, references)}

    async def _grade(
        self, query: str, answer: Answer, passages: Sequence[Passage], references: Sequence[str]
    ) -> dict[str, Any]:
        texts = GradedAnswer(
            question=query, answer=answer.text, passages=[*map(premise, passages)], references=references
        )
        async with aclosing(RemoteModels()) as remote:
            client = build_client(Endpoint(**self.config.llm_config.model_dump()), remote.pool)
            return dict((await RubricJudge(client, load_rubric()).grade(texts)).scores)

    async def _apply_rules(
        self, query: str, answer: Answer, passages: Sequence[Passage], references: Sequence[str]
    ) -> dict[str, Any]:
        async with aclosing(RemoteModels()) as remote:
            judge = await open_judge(LLMConfig(), load_settings(), remote)
            verdict = await judge.judge(answer, passages)
        return {
            "faithfulness": verdict.score,
            "relevance": await to_thread.run_sync(_compare_texts, query, answer.text),
            "completeness": token_f1(answer.text, references) if references else None,
        }


def _compare_texts(one: str, other: str) -> float:
    """The cosine of two texts, 0 if it is negative or one of them is empty."""
    if not (one.strip() and other.strip()):
        return 0.0
    return max(0.0, float(np.dot(get_query_embedding(one), get_query_embedding(other))))
