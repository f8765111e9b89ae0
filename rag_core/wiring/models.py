"""Where models run: in this process, unless something else is given in the place of one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from rag_core.answering.generation.openai import ChatClient
from rag_core.config import (
    CrossEncoderJudge,
    CrossEncoderReranker,
    Endpoint,
    ExtractiveGenerator,
    HybridRetriever,
    LateInteractionReranker,
    OpenAIGenerator,
    PerDocumentRetriever,
    RerankedRetriever,
    RerankerSettings,
    RetrievalSettings,
    Settings,
    SignalsRetriever,
)
from rag_core.errors import ConfigError
from rag_core.models.endpoint import Completer
from rag_core.protocols import PairScorer, QueryEmbedder
from rag_core.wiring.endpoint import client


class Chat(ChatClient, Completer, Protocol):
    """A language model that streams answers, and completes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What is asked in the place of a model of this process, which loads nothing of it then.

    Scores of `reranker` and `judge` are as those of the models that `hosted_reranker` and `hosted_judge` name. `chat`
    is the model that writes the answers, and the one of a judge or reranker that has the same endpoint. With an
    `embedder` the lexical judge goes by words alone: it would need the vectors of tokens.
    """

    embedder: QueryEmbedder | None = None
    reranker: PairScorer | None = None
    judge: PairScorer | None = None
    chat: Chat | None = None


HERE = Elsewhere()


def hosted_reranker(settings: Settings) -> CrossEncoderReranker | LateInteractionReranker:
    """The one whose model may run elsewhere. ConfigError if the profile has none, several, or one of another type."""
    chosen = rerankers(settings.retrieval)
    if len(chosen) != 1:
        raise ConfigError(f"a reranker that runs elsewhere must be the profile's only one, got {len(chosen)}")
    if not isinstance(chosen[0], CrossEncoderReranker | LateInteractionReranker):
        raise ConfigError(
            "a reranker that runs elsewhere must be of type cross_encoder or late_interaction, "
            f"got retrieval.reranker.type {chosen[0].type}"
        )
    return chosen[0]


def hosted_judge(settings: Settings) -> CrossEncoderJudge:
    """The one whose model may run elsewhere. ConfigError if the profile's is of another type, or judges nothing."""
    chosen = settings.guard.judge
    if not isinstance(chosen, CrossEncoderJudge):
        rule = "a judge that runs elsewhere must be of type cross_encoder"
        raise ConfigError(f"{rule}, got guard.judge.type {chosen.type}")
    if isinstance(settings.generation, ExtractiveGenerator):
        raise ConfigError("a judge that runs elsewhere needs answers to judge: generation.type extractive only quotes")
    return chosen


def chat(chosen: Endpoint, settings: Settings, elsewhere: Elsewhere) -> Chat:
    """Asks over HTTP if nothing is given in the place of that endpoint."""
    writing = settings.generation
    if elsewhere.chat is None or not isinstance(writing, OpenAIGenerator):
        return client(chosen)
    same = (chosen.model, chosen.base_url) == (writing.model, writing.base_url)
    return elsewhere.chat if same else client(chosen)


def rerankers(retrieval: RetrievalSettings) -> list[RerankerSettings]:
    """Of every retriever within it, outermost first, each once."""
    found: list[RerankerSettings] = []
    for each in _rerankers(retrieval):
        if each not in found:  # an object of your own has no hash
            found.append(each)
    return found


def _rerankers(retrieval: RetrievalSettings) -> Iterator[RerankerSettings]:
    match retrieval:
        case RerankedRetriever():
            yield retrieval.reranker
            yield from _rerankers(retrieval.retriever)
        case PerDocumentRetriever() | SignalsRetriever():
            yield from _rerankers(retrieval.retriever)
        case HybridRetriever():
            for part in retrieval.retrievers.values():
                yield from _rerankers(part)
        case _:
            return
