"""The choice between models in this process and remote ones, such as deployments of Ray Serve."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from rag_core.config import (
    CrossEncoderJudge,
    CrossEncoderReranker,
    Endpoint,
    ExtractiveGenerator,
    LateInteractionReranker,
    LlmJudge,
    LlmReranker,
    LlmUnderstanding,
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


Protection: TypeAlias = Callable[[str], Callable[[], AbstractContextManager[None]]]
"""A function from a role, such as `generator`, to the context manager that surrounds each call of its model."""


def no_protection(_role: str) -> Callable[[], AbstractContextManager[None]]:
    return nullcontext


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteModels:
    """Clients of the models that run outside this process, which then does not load them.

    `reranker` and `judge` score like the models that `find_remote_reranker` and `find_remote_judge` return. `chat`
    writes the answers, and also serves a judge or reranker with the same endpoint. With a remote `embedder` the lexical
    judge compares words only, because it would need token vectors. The other language models are called over `pool`.
    `protect` returns the method of a role's circuit breaker, for the models that are not remote. `embedders` holds the
    embedders that `build_question_embedder` built. Whoever creates this object closes it before its event loop ends.
    """

    embedder: QueryEmbedder | None = None
    reranker: PairScorer | None = None
    judge: PairScorer | None = None
    chat: Chat | None = None
    pool: HttpPool = field(default_factory=HttpPool, compare=False)
    protect: Protection = field(default=no_protection, compare=False)
    embedders: dict[tuple[Protection, str], QueryEmbedder] = field(default_factory=dict, compare=False)

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


def select_chat(endpoint: Endpoint, settings: Settings, remote: RemoteModels, role: str) -> Chat:
    """The remote language model if the generator has the same endpoint, else an HTTP client with the role's breaker."""
    generation = settings.generation
    if remote.chat is not None and isinstance(generation, OpenAIGenerator):
        is_same = (endpoint.model, endpoint.base_url) == (generation.model, generation.base_url)
        if is_same:
            return remote.chat
    return build_client(endpoint, remote.pool, remote.protect(role))


def called_models(settings: Settings, remote: RemoteModels) -> list[str]:
    """The roles whose models are called by `remote.protect`: endpoints, and the embedder of this process."""
    roles = {
        "embedder": remote.embedder is None,
        "generator": remote.chat is None and isinstance(settings.generation, OpenAIGenerator),
        "judge": isinstance(settings.guard.judge, LlmJudge)
        and not isinstance(settings.generation, ExtractiveGenerator)
        and remote.judge is None,
        "reranker": any(isinstance(section, LlmReranker) for section in list_rerankers(settings.retrieval)),
        "understander": isinstance(settings.conversation.understanding, LlmUnderstanding),
    }
    return [role for role, is_called in roles.items() if is_called]


def share_models(remote: RemoteModels, owner: Settings, other: Settings) -> RemoteModels:
    """The clients of `owner`'s remote models that another profile can use, because it configures the same models."""
    shared = shared_roles(owner, other)
    return replace(
        remote,
        embedder=remote.embedder if "embedder" in shared else None,
        reranker=remote.reranker if "reranker" in shared else None,
        judge=remote.judge if "judge" in shared else None,
        chat=remote.chat if "generator" in shared else None,
    )


def shared_roles(first: Settings, second: Settings) -> set[str]:
    """The roles for which two profiles configure the same model."""
    models, others = _models_by_role(first), _models_by_role(second)
    return {role for role, model in models.items() if model == others[role]}


def _models_by_role(settings: Settings) -> Mapping[str, object]:
    generation = settings.generation
    endpoint = (generation.model, generation.base_url) if isinstance(generation, OpenAIGenerator) else generation
    return {
        "embedder": settings.embedding,
        "generator": endpoint,
        "judge": settings.guard.judge,
        "reranker": list_rerankers(settings.retrieval),
        "understander": settings.conversation.understanding,
    }


def list_rerankers(retrieval: RetrievalSettings) -> list[RerankerSettings]:
    """The distinct rerankers of the retriever and all retrievers within it, outermost first."""
    distinct: list[RerankerSettings] = []
    for reranker in [section.reranker for section in walk(retrieval) if isinstance(section, RerankedRetriever)]:
        if reranker not in distinct:  # no dict or set: a Python object's arguments cannot be hashed
            distinct.append(reranker)
    return distinct
