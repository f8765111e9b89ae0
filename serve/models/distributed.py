"""Models that are deployments of their own: how they are bound, and how the gateway reaches them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from ray.serve import Application
from ray.serve.handle import DeploymentHandle

from rag_core.breaker import Breaker
from rag_core.config import (
    DenseRetriever,
    HybridRetriever,
    OpenAIGenerator,
    PerDocumentRetriever,
    RerankedRetriever,
    RetrievalSettings,
    Settings,
    SignalsRetriever,
)
from rag_core.errors import ConfigError, ModelError
from rag_core.wiring.models import Elsewhere
from serve.models.deployments import embedder_app, scorer_app
from serve.models.llm import Chat, HandleClient, LlmSettings, chat, llm_deployment
from serve.models.remote import RemoteEmbedder, RemotePairs, is_ours
from serve.readiness import Ask, Dependency, no_breaker
from serve.telemetry import record_breaker_state

Role: TypeAlias = Literal["embedder", "reranker", "judge"]
Handle: TypeAlias = "DeploymentHandle[Any]"

NAMES: Mapping[Role, str] = {"embedder": "Embedder", "reranker": "Reranker", "judge": "Judge"}
"""Of their deployments."""

ASKED = {*NAMES, "generator"}
"""What questions are asked of, each behind a circuit breaker."""

TRIED = "ready?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How a language model is deployed, and how its deployment is asked."""

    deployment: Callable[[LlmSettings], Application] = llm_deployment
    chat: Callable[[Handle], Chat] = chat


VLLM = Engine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What stands for the deployments' models, and whether each is there."""

    elsewhere: Elsewhere
    dependencies: Mapping[str, Dependency]


def llm_name(settings: LlmSettings) -> str:
    """Of its deployment, as `ray.serve.llm` has it."""
    return f"LLMServer:{settings.model.replace('/', '--').replace('.', '_')}"


def model_deployment(settings: Settings, role: Role) -> Application:
    """ConfigError if the profile's model of that role cannot be a deployment."""
    return embedder_app(settings) if role == "embedder" else scorer_app(settings, role)


def reached(settings: Settings, handles: Mapping[str, Handle], engine: Engine) -> Reached:
    """By the roles of the handles' deployments."""
    breakers = {role: _breaker(role) for role in handles if role in ASKED}
    elsewhere = Elsewhere(
        embedder=RemoteEmbedder(handles["embedder"], breakers["embedder"]) if "embedder" in handles else None,
        reranker=RemotePairs(handles["reranker"], breakers["reranker"], "reranker") if "reranker" in handles else None,
        judge=RemotePairs(handles["judge"], breakers["judge"], "judge") if "judge" in handles else None,
        chat=_generator(settings, engine.chat(handles["generator"]), breakers["generator"])
        if "generator" in handles
        else None,
    )
    calls = {**_model_calls(elsewhere), **_health_calls(handles)}
    dense = {"embedder"} if _only_dense(settings.retrieval) else set()
    states = {role: partial(getattr, breaker, "state") for role, breaker in breakers.items()}
    dependencies = {
        role: Dependency(call, required=role in dense, breaker=states.get(role, no_breaker))
        for role, call in calls.items()
    }
    return Reached(elsewhere=elsewhere, dependencies=dependencies)


def _breaker(role: str) -> Breaker:
    """Its state is told of from the beginning, so that a gauge is there."""
    record_breaker_state(role, "closed")
    return Breaker(f"the deployment of the {role}", on_change=partial(record_breaker_state, role))


def _generator(settings: Settings, chat: Chat, breaker: Breaker) -> HandleClient:
    chosen = settings.generation
    if not isinstance(chosen, OpenAIGenerator):
        raise ConfigError(f"a generator needs generation.type openai, got {chosen.type}")
    return HandleClient(
        chat,
        model=chosen.model,
        first_token_timeout=chosen.first_token_timeout_ms / 1000,
        stall_timeout=chosen.stall_timeout_ms / 1000,
        breaker=breaker,
    )


def _model_calls(elsewhere: Elsewhere) -> dict[str, Ask]:
    """The smallest work of each model, which goes through its breaker and so also closes it again."""
    scorers = {"reranker": elsewhere.reranker, "judge": elsewhere.judge}
    calls: dict[str, Ask] = {
        role: partial(scorer.score, [(TRIED, TRIED)]) for role, scorer in scorers.items() if scorer
    }
    if elsewhere.embedder:
        calls["embedder"] = partial(elsewhere.embedder.embed, [TRIED])
    return calls


def _health_calls(handles: Mapping[str, Handle]) -> dict[str, Ask]:
    """Of deployments whose work is too dear to be asked for now and then."""
    return {role: partial(_healthy, role, handles[role]) for role in ("generator", "ingest") if role in handles}


async def _healthy(role: str, handle: Handle) -> None:
    response = handle.check_health.remote()
    try:
        await response
    except asyncio.CancelledError as error:
        if not is_ours():
            raise _not_healthy(role, error) from error
        response.cancel()  # type: ignore[no-untyped-call]
        raise
    except Exception as error:  # a replica raises what it likes
        raise _not_healthy(role, error) from error


def _not_healthy(role: str, error: BaseException) -> ModelError:
    return ModelError(f"the deployment of the {role} is not healthy: {type(error).__name__}")


def _only_dense(retrieval: RetrievalSettings) -> bool:
    """Whether nothing is found without the embedder; a hybrid leaves the leg out that has none."""
    match retrieval:
        case HybridRetriever():
            return all(map(_only_dense, retrieval.retrievers.values()))
        case RerankedRetriever() | PerDocumentRetriever() | SignalsRetriever():
            return _only_dense(retrieval.retriever)
        case _:
            return isinstance(retrieval, DenseRetriever)
