"""The node that answers piece by piece."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from rag_core.answering.citing.citations import Citer
from rag_core.answering.pipeline import ABSTENTION
from rag_core.config import Settings
from rag_core.contract.indexing import builtin_errors
from rag_core.contract.nodes.grounded_generator import AnswerConfig, build_prompt, describe_citation, stream_pieces
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.events import CitationAdded, TextDelta
from rag_core.settings import load_settings
from rag_core.types import Prompt


class StreamingGeneratorConfig(AnswerConfig):
    node_type: Literal["streaming_generator"] = "streaming_generator"


class StreamingGeneratorNode:
    """Inputs: as GroundedGeneratorNode. Outputs: `stream`, an asynchronous generator.

    It yields `{"text": ...}` for each piece of the response, and `{"citation": ...}` after each marker. It raises
    RuntimeError if the model breaks off. A reader that stops early must close it.
    """

    def __init__(self, config: StreamingGeneratorConfig) -> None:
        self.config = config

    @as_node(lambda _: {"stream": _empty_stream()})
    async def run(self, inputs: Inputs) -> Outputs:
        settings = load_settings()
        prompt = build_prompt(self.config, settings, inputs)
        return {"stream": self._stream(settings, prompt, read_input(inputs, "context"))}

    async def _stream(
        self, settings: Settings, prompt: Prompt, context: Sequence[Mapping[str, Any]]
    ) -> AsyncGenerator[dict[str, Any], None]:
        hosts = frozenset(settings.guard.link_hosts)
        citer = Citer(prompt.passages, prompt.query.collection, prompt.style.citations, hosts)
        with builtin_errors(f"the node {self.config.name} failed"):
            async with aclosing(stream_pieces(self.config, settings, prompt)) as pieces:
                async for piece in pieces:
                    for event in citer.feed(piece):
                        yield _describe_event(event, context)
        for event in citer.finish():
            yield _describe_event(event, context)
        if not citer.answer.text.strip():
            yield {"text": ABSTENTION}


def _describe_event(event: TextDelta | CitationAdded, context: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if isinstance(event, CitationAdded):
        return {"citation": describe_citation(event.citation, context)}
    return {"text": event.text}


async def _empty_stream() -> AsyncGenerator[dict[str, Any], None]:
    for event in list[dict[str, Any]]():
        yield event
