"""The interpretation of a query in its conversation, which several nodes share."""

from contextlib import aclosing

from rag_core.config import LlmUnderstanding
from rag_core.contract.nodes.context import messages_from_history
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig
from rag_core.contract.nodes.running import Inputs, read_input
from rag_core.settings import load_settings
from rag_core.types import Query, Understanding
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.understanding import build_interpreter


class UnderstandingConfig(NodeConfig):
    """The language model of `llm_config` interprets the query, or without one the profile's interpreter.

    If the model fails, the rules of the library do.
    """

    llm_config: LLMConfig = LLMConfig()


async def understand_query(config: UnderstandingConfig, inputs: Inputs) -> Understanding:
    """Interprets the input `query` after the messages of `conversation_history`."""
    settings, query = load_settings(), str(read_input(inputs, "query"))
    if config.llm_config.model:
        section = LlmUnderstanding(type="llm", **config.llm_config.model_dump())
        conversation = settings.conversation.model_copy(update={"understanding": section})
        settings = settings.model_copy(update={"conversation": conversation})
    history = messages_from_history(read_input(inputs, "conversation_history"), query)
    async with aclosing(RemoteModels()) as remote:
        return await build_interpreter(settings, remote).understand(Query(text=query), history)
