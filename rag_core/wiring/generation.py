"""Builders for generators, and for the token counts that limit the passages and the history."""

from collections.abc import Sequence
from typing import Protocol, assert_never

from rag_core.answering.generation.fallback import Fallback
from rag_core.answering.generation.openai import OpenAIGenerator as ChatGenerator
from rag_core.answering.generation.prompt import load_prompt_pack
from rag_core.answering.generation.small_talk import SmallTalk
from rag_core.config import ExtractiveGenerator, OpenAIGenerator, PythonObject, Settings
from rag_core.models.encoders.query_embedder import ThreadedQueryEmbedder
from rag_core.protocols import Generator, Rarities
from rag_core.text.token_counts import EstimatedTokens, tokenizer_folder
from rag_core.wiring.embedding import is_calibrated, load_shared_encoder
from rag_core.wiring.models import RemoteModels, select_chat
from rag_core.wiring.python_objects import build_python_object
from rag_core.wiring.understanding import build_intents


class TokenCounter(Protocol):
    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Lengths in tokens, in the order given."""
        ...


def build_generator(settings: Settings, rarities: Rarities, remote: RemoteModels) -> Generator:
    """Loads the encoder of an extractive generator unless it is remote, and the prompt pack of a language model."""
    match settings.generation:
        case ExtractiveGenerator() as section:
            return _build_extractive_generator(section, settings, rarities, remote)
        case OpenAIGenerator() as section:
            return _build_chat_generator(section, settings, rarities, remote)
        case PythonObject() as section:
            generator: Generator = build_python_object(section, "generation", "stream")
            return generator
        case _:
            assert_never(settings.generation)


def build_small_talk(settings: Settings, remote: RemoteModels) -> SmallTalk:
    """Replies by the language model that writes the answers, if one does. Loads the prompt packs of the intents."""
    intents, section = build_intents(settings), settings.generation
    if not isinstance(section, OpenAIGenerator):
        return SmallTalk(intents)
    for intent in intents.by_name.values():
        if intent.prompt:
            load_prompt_pack(intent.prompt)  # raises ConfigError now, not at the first question
    client = select_chat(section, settings, remote, "generator")
    return SmallTalk(intents, client, hosts=frozenset(settings.guard.link_hosts))


def build_token_counter(settings: Settings) -> TokenCounter:
    """Counts a language model's own tokens if its tokenizer is configured, else an estimate.

    For generators without a language model it counts words. Raises ModelError if the tokenizer is missing.
    """
    match settings.generation:
        case OpenAIGenerator(tokenizer=""):
            return EstimatedTokens()
        case OpenAIGenerator() as section:
            from rag_core.models.encoders.tokens import ModelTokenizer

            return ModelTokenizer(tokenizer_folder(section.tokenizer))
        case ExtractiveGenerator() | PythonObject():
            from rag_core.models.encoders.tokens import WordTokenizer

            return WordTokenizer()
        case _:
            assert_never(settings.generation)


def _build_chat_generator(
    section: OpenAIGenerator, settings: Settings, rarities: Rarities, remote: RemoteModels
) -> Generator:
    load_prompt_pack(settings.prompt.pack)  # raises ConfigError now, not at the first question
    chat = ChatGenerator(select_chat(section, settings, remote, "generator"), section.temperature, section.max_tokens)
    match section.fallback:
        case "extractive":
            defaults = ExtractiveGenerator(type="extractive")
            return Fallback(chat, _build_extractive_generator(defaults, settings, rarities, remote))
        case "none":
            return chat
        case _:
            assert_never(section.fallback)


def _build_extractive_generator(
    section: ExtractiveGenerator, settings: Settings, rarities: Rarities, remote: RemoteModels
) -> Generator:
    from rag_core.answering.generation.extractive import SentenceExtractor

    return SentenceExtractor(
        encoder=remote.embedder or ThreadedQueryEmbedder(load_shared_encoder(settings.embedding)),
        idf=rarities.idf,
        sentences=section.sentences,
        passages=section.passages,
        threshold=section.threshold,
        confident=settings.answering.confident,
        notice=load_prompt_pack(settings.prompt.pack).passages,
        knows_cosines=is_calibrated(settings.embedding),
    )
