"""The node that holds back responses which their context does not support."""

from contextlib import aclosing
from typing import Literal

from rag_core.answering.judging.guard import Guard
from rag_core.contract.nodes.judging import describe_verdict, open_judge, read_answer
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node
from rag_core.events import Listener, ignore_event
from rag_core.settings import load_settings
from rag_core.stage import recording
from rag_core.types import Answer, Prompt, Query
from rag_core.wiring.models import RemoteModels


class HallucinationGuardConfig(NodeConfig):
    """The language model of `llm_config` judges, or without one the profile's judge."""

    node_type: Literal["hallucination_guard"] = "hallucination_guard"
    llm_config: LLMConfig = LLMConfig()


class HallucinationGuardNode:
    """Inputs: `response` and `context`. Outputs: `response`, `route` and `verdict`.

    If a sentence is not supported, `route` is `fallback` and the response says that it was held back. Otherwise `route`
    is `answer`. If the judge fails, the setting `guard.on_judge_error` decides.
    """

    def __init__(self, config: HallucinationGuardConfig) -> None:
        self.config = config

    @as_node(lambda inputs: {"response": inputs.get("response", ""), "route": "answer", "verdict": {}})
    async def run(self, inputs: Inputs) -> Outputs:
        settings = load_settings()
        answer, passages = read_answer(inputs, settings)

        async def write(_prompt: Prompt, _emit: Listener) -> Answer:
            return answer

        async with aclosing(RemoteModels()) as remote:
            guard = Guard(
                judge=await open_judge(self.config.llm_config, settings, remote),
                mode="block",
                stream="after",
                on_judge_error=settings.guard.on_judge_error,
                timeout=settings.guard.timeout_ms / 1000,
            )
            with recording():
                checked = await guard.answer(Prompt(query=Query(text=""), passages=passages), write, ignore_event)
        route = "fallback" if checked.finish == "blocked" else "answer"
        return {"response": checked.text, "route": route, "verdict": describe_verdict(checked)}
