"""Generators, and the tokens that the passages before them are counted in."""

from collections.abc import Sequence
from typing import Protocol, assert_never

from rag_core.answering.generation.fallback import Fallback
from rag_core.answering.generation.openai import OpenAIGenerator as WritingGenerator
from rag_core.answering.generation.prompt import prompt_pack
from rag_core.config import ExtractiveGenerator, OpenAIGenerator, PythonObject, Settings
from rag_core.models.encoders.query_embedder import Questions
from rag_core.protocols import Generator, Rarities
from rag_core.text.token_counts import EstimatedTokens, tokenizer_folder
from rag_core.wiring.embedding import shared_encoder
from rag_core.wiring.models import HERE, Elsewhere, chat
from rag_core.wiring.python import python_object


class Lengths(Protocol):
    def lengths(self, texts: Sequence[str]) -> list[int]:
        """In tokens, in the order given."""
        ...


def generator(settings: Settings, rarities: Rarities, elsewhere: Elsewhere = HERE) -> Generator:
    """Loads the extractive one's encoder, if it runs here, and the prompt pack of one that reads it."""
    chosen = settings.generation
    match chosen:
        case ExtractiveGenerator():
            return _extractive(chosen, settings, rarities, elsewhere)
        case OpenAIGenerator():
            return _openai(chosen, settings, rarities, elsewhere)
        case PythonObject():
            own: Generator = python_object(chosen)
            return own
        case _:
            assert_never(chosen)


def generator_tokenizer(settings: Settings) -> Lengths:
    """A model's own tokens if its tokenizer is named, else an estimate; words where no model reads. ModelError if the
    tokenizer is not there."""
    chosen = settings.generation
    match chosen:
        case OpenAIGenerator(tokenizer=""):
            return EstimatedTokens()
        case OpenAIGenerator():
            from rag_core.models.encoders.tokens import ModelTokenizer

            return ModelTokenizer(tokenizer_folder(chosen.tokenizer))
        case ExtractiveGenerator() | PythonObject():
            from rag_core.models.encoders.tokens import WordTokenizer

            return WordTokenizer()
        case _:
            assert_never(chosen)


def _openai(chosen: OpenAIGenerator, settings: Settings, rarities: Rarities, elsewhere: Elsewhere) -> Generator:
    prompt_pack(settings.prompt.pack)
    writing = WritingGenerator(chat(chosen, settings, elsewhere), chosen.temperature, chosen.max_tokens)
    match chosen.fallback:
        case "extractive":
            quoting = ExtractiveGenerator(type="extractive")
            return Fallback(writing, _extractive(quoting, settings, rarities, elsewhere))
        case "none":
            return writing
        case _:
            assert_never(chosen.fallback)


def _extractive(chosen: ExtractiveGenerator, settings: Settings, rarities: Rarities, elsewhere: Elsewhere) -> Generator:
    from rag_core.answering.generation.extractive import Extractive

    return Extractive(
        encoder=elsewhere.embedder or Questions(shared_encoder(settings.embedding)),
        idf=rarities.idf,
        sentences=chosen.sentences,
        passages=chosen.passages,
        threshold=chosen.threshold,
    )
