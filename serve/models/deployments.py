"""Models as deployments of Ray Serve, so that all gateways share their batches. `serve.models.remote` calls them."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import ray
from ray import serve
from ray.serve import Application

from rag_core.config import Settings
from rag_core.errors import UsageError
from rag_core.models.encoders.query_embedder import ThreadedQueryEmbedder
from rag_core.models.shared_model import SharedModel
from rag_core.protocols import Pair
from rag_core.types import Matrix
from rag_core.wiring.embedding import build_encoder
from rag_core.wiring.judging import judge_model
from rag_core.wiring.models import find_remote_judge, find_remote_reranker
from rag_core.wiring.reranking import reranker_model
from serve.models.batches import estimate_tokens, reconfigure_batches, token_batches
from serve.telemetry import configure_telemetry, continuing_operation

MAX_ONGOING_CALLS, MAX_QUEUED_CALLS = 256, 512
"""Calls that a replica accepts at the same time, most of which wait for the model; and calls that each caller queues
when no replica accepts them. Further calls are rejected."""
HEALTH_CHECK_TIMEOUT = 20.0
"""Seconds in which a replica must answer a health check. One or two batches can be computed before it."""
_PROBE = "ready"

_OPTIONS: dict[str, Any] = {
    "max_ongoing_requests": MAX_ONGOING_CALLS,
    "max_queued_requests": MAX_QUEUED_CALLS,
    "backpressure_config": {"status_code": 503, "retry_after_s": 1},
    "health_check_period_s": 10,
    "health_check_timeout_s": 30,
    "ray_actor_options": {"num_cpus": 1},
}


def embedder_app(settings: Settings) -> Application:
    """A deployment of the profile's encoder."""
    app: Application = Embedder.bind(settings.model_dump_json())  # type: ignore[attr-defined]
    return app


def scorer_app(settings: Settings, role: Literal["reranker", "judge"]) -> Application:
    """A deployment of the profile's reranker or judge. Raises ConfigError if its type cannot be a deployment."""
    find_remote_reranker(settings) if role == "reranker" else find_remote_judge(settings)
    scorer = Scorer.options(name=role.capitalize())  # type: ignore[attr-defined]
    app: Application = scorer.bind(settings.model_dump_json(), role)
    return app


@serve.deployment(**_OPTIONS)
class Embedder:
    def __init__(self, settings: str) -> None:
        """Loads the encoder and encodes once to warm it up. Raises ModelError if model or device is unavailable."""
        parsed = Settings.model_validate_json(settings)
        configure_telemetry("embedder", parsed.telemetry)
        encoder = build_encoder(parsed.embedding, threads=_replica_cpus())
        encoder.embed_questions([_PROBE])
        self._embedder = ThreadedQueryEmbedder(encoder)
        self._batches = token_batches(self._embedder.embed, estimate_tokens)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        reconfigure_batches(self._batches, user_config)

    async def embed(self, texts: Sequence[str], operation_values: Mapping[str, str]) -> Matrix:
        """Embeds texts like a `QueryEmbedder`. `operation_values` are the caller's `outgoing_values()`.

        Raises UsageError if a text is not valid Unicode.
        """
        with continuing_operation(operation_values, "Embedder"):
            _check_texts(texts)
            return np.concatenate(await self._batches.compute_divided(texts))

    async def check_health(self) -> None:
        """Calls the model directly, so that it does not wait for queued batches."""
        async with asyncio.timeout(HEALTH_CHECK_TIMEOUT):
            await self._embedder.embed([_PROBE])


@serve.deployment(**_OPTIONS)
class Scorer:
    def __init__(self, settings: str, role: Literal["reranker", "judge"]) -> None:
        """Loads the model; Serve's first health check warms it up. Raises ModelError if model or device is
        unavailable."""
        parsed, self._role = Settings.model_validate_json(settings), role
        configure_telemetry(role, parsed.telemetry)
        self._model: SharedModel[Any]
        if role == "reranker":
            self._model = reranker_model(find_remote_reranker(parsed))
        else:
            self._model = judge_model(find_remote_judge(parsed))
        self._model.load(threads=_replica_cpus())
        self._batches = token_batches(self._model.score, _estimate_pair)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        reconfigure_batches(self._batches, user_config)

    async def score(self, pairs: Sequence[Pair], operation_values: Mapping[str, str]) -> list[float]:
        """Scores pairs like a `PairScorer`. `operation_values` are the caller's `outgoing_values()`.

        Raises UsageError if a text is not valid Unicode.
        """
        with continuing_operation(operation_values, self._role.capitalize()):
            _check_texts(list(chain.from_iterable(pairs)))
            return list(chain.from_iterable(await self._batches.compute_divided(pairs)))

    async def check_health(self) -> None:
        """Calls the model directly, so that it does not wait for queued batches."""
        async with asyncio.timeout(HEALTH_CHECK_TIMEOUT):
            await self._model.score([(_PROBE, _PROBE)])


def _estimate_pair(pair: Pair) -> int:
    return sum(map(estimate_tokens, pair))


def _check_texts(texts: Sequence[str]) -> None:
    """Raises UsageError for a text that a tokenizer rejects: it would fail every call in its batch."""
    for text in texts:
        try:
            text.encode()
        except (UnicodeEncodeError, AttributeError):
            # not chained: that error contains the text
            kind = "half a surrogate pair" if isinstance(text, str) else f"a {type(text).__name__}"
            raise UsageError(f"a model's input must be Unicode text, got {kind}") from None


def _replica_cpus() -> int:
    """The number of CPUs that Ray assigned to this replica, rounded down and at least 1; 1 outside Ray."""
    if not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return 1
    assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
    return max(1, int(assigned.get("CPU", 1)))
