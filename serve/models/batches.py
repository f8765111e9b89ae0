"""The batches of a deployment: their settings, which can change while it runs."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag_core.errors import ConfigError, validation_lines
from rag_core.models.batches import Batches

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)

_CHARS_PER_TOKEN = 4
"""A rough figure for English. The model's own tokenizer would have to read every text twice."""


class BatchSettings(BaseModel):
    """The settings that can change while a replica runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int = Field(16_384, ge=1, description="tokens of a batch, estimated as its characters divided by 4")
    wait_ms: float = Field(2.0, ge=0, le=1000, description="time to wait for more calls while the model is free")


def parse_batch_settings(user_config: object) -> BatchSettings:
    """Raises ConfigError with the key, the rule and the value."""
    try:
        return BatchSettings.model_validate(user_config)
    except ValidationError as error:
        raise ConfigError("; ".join(validation_lines(error, "user_config"))) from error


def estimate_tokens(text: str) -> int:
    return len(text) // _CHARS_PER_TOKEN + 1


def token_batches(
    compute_batch: Callable[[Sequence[T]], Coroutine[Any, Any, R]], count_tokens: Callable[[T], int]
) -> Batches[T, R]:
    """Batches of at most `tokens` of the default settings."""
    batches = Batches(compute_batch, count_tokens, limit=1)
    _apply(BatchSettings(), batches)
    return batches


def reconfigure_batches(batches: Batches[Any, Any], user_config: object) -> None:
    """Changes the settings of later batches. Invalid settings are logged and ignored.

    Serve would stop a replica that raises here, and could not start another one.
    """
    try:
        _apply(parse_batch_settings(user_config), batches)
    except ConfigError as error:
        _log.error("%s; the settings stay tokens=%d wait_ms=%g", error, batches.limit, 1000 * batches.wait)


def _apply(settings: BatchSettings, batches: Batches[Any, Any]) -> None:
    batches.limit, batches.wait = settings.tokens, settings.wait_ms / 1000
