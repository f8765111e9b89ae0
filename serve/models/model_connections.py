"""The deployments of models, and the gateway's connections to them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from ray.serve import Application
from ray.serve.handle import DeploymentHandle

from rag_core.breaker import Breaker
from rag_core.config import Combinator, DenseRetriever, OpenAIGenerator, RetrievalSettings, Settings, walk
from rag_core.errors import ConfigError, ModelError
from rag_core.models.chat import ChatClient
from rag_core.wiring.models import RemoteModels
from serve.models.deployments import embedder_app, scorer_app
from serve.models.llm import ChatCall, LlmSettings, chat_call, deployment_client, llm_deployment
from serve.models.remote import RemoteEmbedder, RemotePairs, translate_call_errors
from serve.readiness import Check, Dependency, no_breaker
from serve.services import build_breaker

Role: TypeAlias = Literal["embedder", "reranker", "judge"]
Handle: TypeAlias = "DeploymentHandle[Any]"

DEPLOYMENT_NAMES: Mapping[Role, str] = {"embedder": "Embedder", "reranker": "Reranker", "judge": "Judge"}

BREAKER_ROLES = {*DEPLOYMENT_NAMES, "generator"}
"""The roles that questions use. Each has a circuit breaker."""

PROBE = "ready?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A way to deploy a language model, and to call its deployment."""

    deployment: Callable[[LlmSettings], Application] = llm_deployment
    chat: Callable[[Handle], ChatCall] = chat_call


VLLM = Engine()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedModels:
    """Clients of the deployed models, and checks of their deployments."""

    remote_models: RemoteModels
    dependencies: Mapping[str, Dependency]


def llm_name(settings: LlmSettings) -> str:
    """The name that `ray.serve.llm` gives to the model's deployment."""
    return f"LLMServer:{settings.model.replace('/', '--').replace('.', '_')}"


def model_deployment(settings: Settings, role: Role) -> Application:
    """Raises ConfigError if the profile's model with that role cannot be a deployment."""
    return embedder_app(settings) if role == "embedder" else scorer_app(settings, role)


def openai_generation(settings: Settings) -> OpenAIGenerator:
    """The generator's settings. Raises ConfigError unless the type is openai, which a deployed generator requires."""
    if not isinstance(settings.generation, OpenAIGenerator):
        raise ConfigError(f"a generator requires generation.type openai, got {settings.generation.type}")
    return settings.generation


def connect_models(settings: Settings, handles: Mapping[str, Handle], engine: Engine) -> ConnectedModels:
    """Connects to deployments by role. Raises ConfigError if a generator is deployed, but its type is not openai."""
    breakers = {role: build_breaker(role, f"the deployment of the {role}") for role in handles if role in BREAKER_ROLES}
    models = RemoteModels(
        embedder=RemoteEmbedder(handles["embedder"], breakers["embedder"]) if "embedder" in handles else None,
        reranker=RemotePairs(handles["reranker"], breakers["reranker"], "reranker") if "reranker" in handles else None,
        judge=RemotePairs(handles["judge"], breakers["judge"], "judge") if "judge" in handles else None,
        chat=_connect_generator(settings, engine.chat(handles["generator"]), breakers["generator"])
        if "generator" in handles
        else None,
    )
    required = {"embedder"} if _is_dense_only(settings.retrieval) else set()
    states = {role: partial(getattr, breaker, "state") for role, breaker in breakers.items()}
    dependencies = {
        role: Dependency(check, required=role in required, breaker=states.get(role, no_breaker))
        for role, check in _build_checks(models, handles).items()
    }
    return ConnectedModels(remote_models=models, dependencies=dependencies)


def _connect_generator(settings: Settings, chat: ChatCall, breaker: Breaker) -> ChatClient:
    generation = openai_generation(settings)
    return deployment_client(
        chat,
        model=generation.model,
        first_token_timeout=generation.first_token_timeout_ms / 1000,
        stall_timeout=generation.stall_timeout_ms / 1000,
        breaker=breaker,
    )


def _build_checks(models: RemoteModels, handles: Mapping[str, Handle]) -> dict[str, Check]:
    """The check of each deployment. For a model it is the smallest possible call.

    It passes through the model's breaker, and closes the breaker when the model has recovered. Calls of the generator
    and of the ingest runner would be too expensive, so these two have their health checks called.
    """
    checks: dict[str, Check] = {}
    for role, scorer in {"reranker": models.reranker, "judge": models.judge}.items():
        if scorer:
            checks[role] = partial(scorer.score, [(PROBE, PROBE)])
    if models.embedder:
        checks["embedder"] = partial(models.embedder.embed, [PROBE])
    for role in ("generator", "ingest"):
        if role in handles:
            checks[role] = partial(_check_health, role, handles[role])
    return checks


async def _check_health(role: str, handle: Handle) -> None:
    response, deployment = handle.check_health.remote(), f"the deployment of the {role}"
    with translate_call_errors(
        deployment, response.cancel, lambda failure, _: ModelError(f"{deployment} is not healthy: {failure}")
    ):
        await response


def _is_dense_only(retrieval: RetrievalSettings) -> bool:
    """True if nothing can be found without the embedder. A hybrid retriever skips a leg that fails."""
    return all(isinstance(section, DenseRetriever | Combinator) for section in walk(retrieval))
