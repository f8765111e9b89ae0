"""The `args` of an application in a Serve config: its settings, and its model deployments."""

from pydantic import Field

from rag_core.config import Section, Settings
from rag_core.errors import ConfigError
from rag_core.wiring.models import find_remote_judge, find_remote_reranker
from serve.gateway_settings import SettingsSource, load_own_settings
from serve.models.llm import LlmSettings
from serve.models.model_connections import DEPLOYMENT_NAMES, Role, llm_name, openai_generation

GATEWAY_NAME, RUNNER_NAME = "Gateway", "IngestRunner"


class Parts(Section):
    """The deployments besides the gateway. A model without a deployment runs in the gateway's process."""

    deployments: frozenset[Role] = Field(frozenset(), description="models that run in separate deployments")
    generator: LlmSettings | None = Field(None, description="the model that writes the answers, served by vLLM")
    ingest: bool = Field(True, description="run the ingest jobs that are queued over HTTP")


class Arguments(Parts):
    """The arguments of `serve.app:build`: settings as the command line accepts them, and the deployments."""

    profile: str = ""
    config: str = Field("", description="a YAML file with settings, on the machine that builds the application")
    set: tuple[str, ...] = Field((), description="SECTION.KEY=VALUE")


def source_from_arguments(arguments: Arguments) -> SettingsSource:
    return SettingsSource(file=arguments.config, profile=arguments.profile, set=arguments.set)


def settings_from_arguments(arguments: Arguments) -> Settings:
    """The gateway's own profile. Raises ConfigError if it is invalid, or does not match the deployments."""
    settings = load_own_settings(source_from_arguments(arguments))
    check_parts(settings, arguments)
    return settings


def check_parts(settings: Settings, parts: Parts) -> None:
    """Raises ConfigError for a deployment that the settings would not use."""
    if "reranker" in parts.deployments:
        find_remote_reranker(settings)
    if "judge" in parts.deployments:
        find_remote_judge(settings)
    if parts.generator is None:
        return
    model = openai_generation(settings).model
    if model != parts.generator.model:
        raise ConfigError(f"generator.model must be generation.model, {model}, got {parts.generator.model}")


def deployment_names(parts: Parts) -> list[str]:
    """The names of the deployments of an application."""
    models = [DEPLOYMENT_NAMES[role] for role in sorted(parts.deployments)]
    generator = [llm_name(parts.generator)] if parts.generator else []
    return [GATEWAY_NAME, *models, *generator, *([RUNNER_NAME] if parts.ingest else [])]
