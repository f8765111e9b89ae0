"""The arguments of the application, as a Serve config gives them: its settings, and which parts are deployments."""

from pathlib import Path

from pydantic import Field

from rag_core.config import OpenAIGenerator, Section, Settings
from rag_core.errors import ConfigError
from rag_core.settings import load_settings
from rag_core.wiring.models import hosted_judge, hosted_reranker
from serve.models.distributed import NAMES, Role, llm_name
from serve.models.llm import LlmSettings

GATEWAY, RUNNER = "Gateway", "IngestRunner"


class Parts(Section):
    """What the gateway has beside it. A model without a deployment of its own runs in the gateway's process."""

    deployments: frozenset[Role] = Field(frozenset(), description="models with a deployment of their own")
    generator: LlmSettings | None = Field(None, description="the model that writes the answers, by vLLM")
    ingest: bool = Field(True, description="documents are taken over HTTP")


class Arguments(Parts):
    """Of `build`, as a Serve config gives them under `args`: settings as the command line takes them, and parts."""

    profile: str = ""
    config: str = Field("", description="a YAML file with settings, where the application is built")
    set: tuple[str, ...] = Field((), description="SECTION.KEY=VALUE")


def settings_of(arguments: Arguments) -> Settings:
    """ConfigError if they break a rule, or do not fit the parts."""
    file = Path(arguments.config) if arguments.config else None
    settings = load_settings(file, arguments.profile or None, arguments.set)
    check_parts(settings, arguments)
    return settings


def check_parts(settings: Settings, parts: Parts) -> None:
    """ConfigError for a deployment that nothing would ask."""
    if "reranker" in parts.deployments:
        hosted_reranker(settings)
    if "judge" in parts.deployments:
        hosted_judge(settings)
    if parts.generator is None:
        return
    if not isinstance(settings.generation, OpenAIGenerator):
        raise ConfigError(f"a generator needs generation.type openai, got {settings.generation.type}")
    if settings.generation.model != parts.generator.model:
        raise ConfigError(
            f"generator.model must be generation.model, {settings.generation.model}, got {parts.generator.model}"
        )


def deployment_names(parts: Parts) -> list[str]:
    """Of all deployments that an application of these parts has."""
    models = [NAMES[role] for role in sorted(parts.deployments)]
    generator = [llm_name(parts.generator)] if parts.generator else []
    return [GATEWAY, *models, *generator, *([RUNNER] if parts.ingest else [])]
