"""Models as deployments of Ray Serve: the calls of all gateways share a model's batches.

Each is asked through its handle, by `serve.models.remote`.
"""

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
from rag_core.models.encoders.query_embedder import Questions
from rag_core.models.shared import SharedModel
from rag_core.protocols import Pair
from rag_core.types import Matrix
from rag_core.wiring.embedding import encoder
from rag_core.wiring.judging import judge_pairs
from rag_core.wiring.models import hosted_judge, hosted_reranker
from rag_core.wiring.reranking import reranker_pairs
from serve.models.batches import Batches, BatchSettings, estimated_tokens
from serve.telemetry import continuing_operation, observe

ONGOING, QUEUED = 256, 512
"""Calls that a replica works on at once, most of which wait for its model; and that wait with one who asks, for a
replica that takes them. The others are refused."""
HEALTHY_WITHIN = 20.0
"""Seconds. A batch or two may be under way before."""
_PROBE = "ready"

_OPTIONS: dict[str, Any] = {
    "max_ongoing_requests": ONGOING,
    "max_queued_requests": QUEUED,
    "backpressure_config": {"status_code": 503, "retry_after_s": 1},
    "health_check_period_s": 10,
    "health_check_timeout_s": 30,
    "ray_actor_options": {"num_cpus": 1},
}


def embedder_app(settings: Settings) -> Application:
    """Of the profile's encoder."""
    app: Application = Embedder.bind(settings.model_dump_json())  # type: ignore[attr-defined]
    return app


def scorer_app(settings: Settings, role: Literal["reranker", "judge"]) -> Application:
    """ConfigError if the profile's is of a kind that cannot be a deployment."""
    hosted_reranker(settings) if role == "reranker" else hosted_judge(settings)
    named = Scorer.options(name=role.capitalize())  # type: ignore[attr-defined]
    app: Application = named.bind(settings.model_dump_json(), role)
    return app


@serve.deployment(**_OPTIONS)
class Embedder:
    def __init__(self, settings: str) -> None:
        """Has encoded before it is ready. ModelError if the model, or its device, is not there."""
        own = Settings.model_validate_json(settings)
        observe("embedder", own.telemetry)
        loaded = encoder(own.embedding, threads=_cpus())
        loaded.embed_questions([_PROBE])
        self._questions = Questions(loaded)
        self._batches = Batches[str, Matrix](self._questions.embed, estimated_tokens, BatchSettings())

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        self._batches.change(user_config)

    async def embed(self, texts: Sequence[str], marks: Mapping[str, str]) -> Matrix:
        """As `QueryEmbedder`, for the operation that the marks are `carried` from. UsageError if one is no text."""
        with continuing_operation(marks, "Embedder"):
            _refuse_no_text(texts)
            return np.concatenate(await self._batches.of(texts))

    async def check_health(self) -> None:
        """The model itself is asked, beside the batches that wait."""
        async with asyncio.timeout(HEALTHY_WITHIN):
            await self._questions.embed([_PROBE])


@serve.deployment(**_OPTIONS)
class Scorer:
    def __init__(self, settings: str, role: Literal["reranker", "judge"]) -> None:
        """ModelError if the model, or its device, is not there; before it is ready its health is checked, and so its
        model warm."""
        own, self._role = Settings.model_validate_json(settings), role
        observe(role, own.telemetry)
        self._model = _model(own, role)
        self._model.load(threads=_cpus())
        self._batches = Batches[Pair, list[float]](self._model.score, _tokens, BatchSettings())

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        self._batches.change(user_config)

    async def score(self, pairs: Sequence[Pair], marks: Mapping[str, str]) -> list[float]:
        """As `PairScorer`, for the operation that the marks are `carried` from. UsageError if one is no text."""
        with continuing_operation(marks, self._role.capitalize()):
            _refuse_no_text(list(chain.from_iterable(pairs)))
            return list(chain.from_iterable(await self._batches.of(pairs)))

    async def check_health(self) -> None:
        """The model itself is asked, beside the batches that wait."""
        async with asyncio.timeout(HEALTHY_WITHIN):
            await self._model.score([(_PROBE, _PROBE)])


def _model(settings: Settings, role: Literal["reranker", "judge"]) -> SharedModel[Any]:
    return reranker_pairs(hosted_reranker(settings)) if role == "reranker" else judge_pairs(hosted_judge(settings))


def _tokens(pair: Pair) -> int:
    return sum(map(estimated_tokens, pair))


def _refuse_no_text(texts: Sequence[str]) -> None:
    """One that a tokenizer cannot read would fail all that share its batch."""
    for text in texts:
        try:
            text.encode()
        except (UnicodeEncodeError, AttributeError):
            # not chained: that error holds the text
            kind = "half a surrogate pair" if isinstance(text, str) else f"a {type(text).__name__}"
            raise UsageError(f"what a model reads must be Unicode text, got {kind}") from None


def _cpus() -> int:
    """Whole ones that this replica has; one where it is none of Ray's."""
    if not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return 1
    assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
    return max(1, int(assigned.get("CPU", 1)))
