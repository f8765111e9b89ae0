"""The node that grades each sentence of a response."""

from contextlib import aclosing
from dataclasses import replace
from typing import Literal

from rag_core.contract.nodes.judging import describe_verdict, open_judge, read_answer
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node
from rag_core.settings import load_settings
from rag_core.wiring.models import RemoteModels


class LLMJudgeConfig(NodeConfig):
    """An empty `model` of `llm_config` means the judge of the profile."""

    node_type: Literal["llm_judge"] = "llm_judge"
    llm_config: LLMConfig


class LLMJudgeNode:
    """Inputs: `response` and `context`. Outputs: `verdict`; its `claims` grade each sentence."""

    def __init__(self, config: LLMJudgeConfig) -> None:
        self.config = config

    @as_node(lambda _: {"verdict": {}})
    async def run(self, inputs: Inputs) -> Outputs:
        settings = load_settings()
        answer, passages = read_answer(inputs, settings)
        async with aclosing(RemoteModels()) as remote:
            judge = await open_judge(self.config.llm_config, settings, remote)
            verdict = await judge.judge(answer, passages)
        return {"verdict": describe_verdict(replace(answer, verdict=verdict))}
