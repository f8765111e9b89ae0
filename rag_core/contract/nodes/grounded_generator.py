"""The node that answers from given passages."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from anyio import to_thread
from pydantic import Field

from rag_core.answering.citing.citations import cite
from rag_core.answering.generation.openai import OpenAIGenerator
from rag_core.answering.generation.prompt import PromptPack
from rag_core.answering.pipeline import ABSTENTION
from rag_core.config import Endpoint, Settings
from rag_core.contract.equal_rarities import EqualRarities
from rag_core.contract.nodes.context import messages_from_history, passages_from_context
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.protocols import Generator
from rag_core.settings import load_settings
from rag_core.stage import recording, stage
from rag_core.types import Answer, Citation, Prompt, Query, Style
from rag_core.wiring.endpoint import build_client
from rag_core.wiring.generation import build_generator
from rag_core.wiring.models import RemoteModels

NO_ANSWER: Mapping[str, Any] = {"response": "", "citations": [], "tokens_used": 0}
_COUNTS = ("prompt_tokens", "completion_tokens")


class AnswerConfig(NodeConfig):
    """`system_prompt`, `max_tokens` and `temperature` are for a model of `llm_config`.

    The profile's generator, which answers without one, has settings of its own.
    """

    llm_config: LLMConfig
    system_prompt: str
    citation_style: Literal["inline", "footnote", "endnote"] = "inline"
    max_tokens: int = Field(1024, ge=1)
    temperature: float = Field(0.1, ge=0, le=2)


class GroundedGeneratorConfig(AnswerConfig):
    node_type: Literal["grounded_generator"] = "grounded_generator"


class GroundedGeneratorNode:
    """Inputs: `query`, `context`, and `conversation_history`. Outputs: `response`, `citations` and `tokens_used`.

    The marker `[n]` in the response means the nth item of the context. `source_id` is the item's id, `snippet` the
    sentence in it that supports the claim. `tokens_used` is the endpoint's count; 0 if none wrote the response.
    """

    def __init__(self, config: GroundedGeneratorConfig) -> None:
        self.config = config

    @as_node(lambda _: dict(NO_ANSWER))
    async def run(self, inputs: Inputs) -> Outputs:
        settings, context = load_settings(), read_input(inputs, "context")
        prompt = build_prompt(self.config, settings, inputs)
        with recording(settings.answering.timeout_ms / 1000) as stages:
            async with stage("generate"), aclosing(stream_pieces(self.config, settings, prompt)) as pieces:
                text = "".join([piece async for piece in pieces])
        tokens = sum(int(report.figures.get(name, 0)) for report in stages for name in _COUNTS)
        hosts = frozenset(settings.guard.link_hosts)
        answer = cite(text, prompt.passages, prompt.query.collection, prompt.style.citations, hosts)
        return {**_describe_answer(answer, context), "tokens_used": tokens}


def build_prompt(config: AnswerConfig, settings: Settings, inputs: Inputs) -> Prompt:
    query = str(read_input(inputs, "query"))
    return Prompt(
        query=Query(text=query, tenant=settings.tenant),
        passages=passages_from_context(read_input(inputs, "context")),
        history=messages_from_history(inputs.get("conversation_history") or (), query),
        style=Style(pack=settings.prompt.pack, citations=config.citation_style),
    )


async def stream_pieces(config: AnswerConfig, settings: Settings, prompt: Prompt) -> AsyncGenerator[str, None]:
    """Yields the text of the configured language model, or of the profile's generator; nothing without passages."""
    if not prompt.passages:
        return
    async with aclosing(RemoteModels()) as remote:
        generator: Generator
        if config.llm_config.model:
            client = build_client(Endpoint.model_validate(config.llm_config.model_dump()), remote.pool)
            pack = PromptPack(system=config.system_prompt)
            generator = OpenAIGenerator(client, config.temperature, config.max_tokens, pack)
        else:
            rarities = EqualRarities(prompt.passages)
            generator = await to_thread.run_sync(build_generator, settings, rarities, remote)
        async with aclosing(generator.stream(prompt)) as pieces:
            async for piece in pieces:
                yield piece


def describe_citation(citation: Citation, context: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        "id": str(citation.n),
        "source_id": str(context[citation.n - 1]["id"]),
        "snippet": citation.quote,
    }


def _describe_answer(answer: Answer, context: Sequence[Mapping[str, Any]]) -> Outputs:
    """The response and each citation once. An empty answer means that the context does not answer."""
    citations: list[dict[str, str]] = []
    for citation in answer.citations:
        if (described := describe_citation(citation, context)) not in citations:
            citations.append(described)
    return {"response": answer.text if answer.text.strip() else ABSTENTION, "citations": citations}
