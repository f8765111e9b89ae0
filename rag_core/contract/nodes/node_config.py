"""The configuration that all nodes have. Names and defaults are those of the node interface."""

from pydantic import Field

from rag_core.config import Section


class RetryConfig(Section):
    """The retries of temporary failures. `max_retries` counts the attempts after the first.

    The first wait takes a second, each further one `backoff_base` times as long, up to `max_delay` seconds. Each has up
    to a second more, at random.
    """

    max_retries: int = Field(3, ge=0)
    backoff_base: float = Field(2.0, ge=1)
    max_delay: float = Field(60.0, ge=0)


class NodeConfig(Section):
    """The fields of all nodes. A node that is not `enabled` is skipped; `name` identifies it in logs and errors."""

    name: str = Field(min_length=1)
    node_type: str
    enabled: bool = True
    retry_config: RetryConfig = RetryConfig()


class LLMConfig(Section):
    """A language model at an OpenAI-compatible endpoint. An empty `model` means the generator of the profile.

    `api_key_env` names the environment variable that holds the key.
    """

    model: str = ""
    base_url: str = Field("https://api.openai.com/v1", pattern=r"^https?://")
    api_key_env: str = ""
