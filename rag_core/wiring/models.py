"""The choice between models in this process and remote ones, such as deployments of Ray Serve."""

from dataclasses import dataclass, field
from typing import Protocol

from rag_core.config import (
    CrossEncoderJudge,
    CrossEncoderReranker,
    Endpoint,
    ExtractiveGenerator,
    LateInteractionReranker,
    OpenAIGenerator,
    RerankedRetriever,
    RerankerSettings,
    RetrievalSettings,
    Settings,
    walk,
)
from rag_core.errors import ConfigError
from rag_core.models.chat import Completer, Streamer
from rag_core.models.endpoint import HttpPool
from rag_core.protocols import PairScorer, QueryEmbedder
from rag_core.wiring.endpoint import build_client


class Chat(Streamer, Completer, Protocol):
    """A language model that streams answers and completes prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteModels:
    """Clients of the models that run outside this process, which then does not load them.

    `reranker` and `judge` score like the models that `find_remote_reranker` and `find_remote_judge` return. `chat`
    writes the answers, and also serves a judge or reranker with the same endpoint. With a remote `embedder` the lexical
    judge compares words only, because it would need token vectors. The other language models are called over `pool`.
    Whoever creates this object closes it before its event loop ends.
    """

    embedder: QueryEmbedder | None = None
    reranker: PairScorer | None = None
    judge: PairScorer | None = None
    chat: Chat | None = None
    pool: HttpPool = field(default_factory=HttpPool, compare=False)

    async def aclose(self) -> None:
        """Closes the connections to endpoints."""
        await self.pool.aclose()


def find_remote_reranker(settings: Settings) -> CrossEncoderReranker | LateInteractionReranker:
    """The profile's only reranker. Raises ConfigError if it has none, several, or one that cannot be remote."""
    rerankers = list_rerankers(settings.retrieval)
    if len(rerankers) != 1:
        raise ConfigError(f"a remote reranker must be the profile's only reranker, got {len(rerankers)}")
    if not isinstance(rerankers[0], CrossEncoderReranker | LateInteractionReranker):
        raise ConfigError(
            "a remote reranker must be of type cross_encoder or late_interaction, "
            f"got retrieval.reranker.type {rerankers[0].type}"
        )
    return rerankers[0]


def find_remote_judge(settings: Settings) -> CrossEncoderJudge:
    """The profile's judge. Raises ConfigError if it cannot be remote, or if no answer needs a judge."""
    section = settings.guard.judge
    if not isinstance(section, CrossEncoderJudge):
        raise ConfigError(f"a remote judge must be of type cross_encoder, got guard.judge.type {section.type}")
    if isinstance(settings.generation, ExtractiveGenerator):
        raise ConfigError("a remote judge would never be used: answers of generation.type extractive are not judged")
    return section


def select_chat(endpoint: Endpoint, settings: Settings, remote: RemoteModels) -> Chat:
    """The remote language model if the generator has the same endpoint, else an HTTP client."""
    generation = settings.generation
    if remote.chat is None or not isinstance(generation, OpenAIGenerator):
        return build_client(endpoint, remote.pool)
    is_same = (endpoint.model, endpoint.base_url) == (generation.model, generation.base_url)
    return remote.chat if is_same else build_client(endpoint, remote.pool)


def list_rerankers(retrieval: RetrievalSettings) -> list[RerankerSettings]:
    """The distinct rerankers of the retriever and all retrievers within it, outermost first."""
    distinct: list[RerankerSettings] = []
    for reranker in [section.reranker for section in walk(retrieval) if isinstance(section, RerankedRetriever)]:
        if reranker not in distinct:  # no dict or set: a Python object's arguments cannot be hashed
            distinct.append(reranker)
    return distinct
