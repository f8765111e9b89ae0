"""ragas' measures of answers, through any OpenAI-compatible endpoint.

    ragas_faithfulness, ragas_answer_relevancy           answers that are not refusals
    ragas_context_precision, ragas_context_recall        questions with references, unless they are unanswerable; ragas
                                                         takes one reference, the first

ragas is imported only here, after its telemetry is switched off. It takes seconds.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from jobs.answer_scores import Scores, run_in_thread, start_scores
from rag_core.config import EmbeddingSettings
from rag_core.errors import ModelError, describe_error
from rag_core.evaluation.answer_measures import MeasuredAnswer
from rag_core.models.chat_bodies import CompletionBody
from rag_core.models.encoders.query_embedder import ThreadedQueryEmbedder
from rag_core.protocols import QueryEmbedder
from rag_core.wiring.embedding import load_shared_encoder

if TYPE_CHECKING:
    from httpx2 import Response
    from ragas.embeddings.base import BaseRagasEmbedding

MAX_REQUESTS = 64
"""The number of measures in progress, in each process."""
TIMEOUT = 120.0
"""Seconds for one measure of one answer."""
MAX_TOKENS = 4096
MAX_REASON_CHARS = 200


def load_embedder(embedding: EmbeddingSettings) -> QueryEmbedder:
    return ThreadedQueryEmbedder(load_shared_encoder(embedding))


def check_ragas() -> None:
    """Raises ModelError if ragas is not installed."""
    if find_spec("ragas") is None:
        raise ModelError("ragas is not installed: install the extra [eval], pip install -c constraints.txt .[eval]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RagasTask:
    """A ScoreTask of an endpoint and its model.

    `load_embedder` returns the embedder of the questions whose similarity is the answer relevancy.
    """

    url: str
    model: str
    load_embedder: Callable[[], QueryEmbedder]
    name: str = "ragas"
    callers: int = MAX_REQUESTS

    @property
    def description(self) -> str:
        return self.model

    def open(self) -> AbstractContextManager[Callable[[MeasuredAnswer], Scores]]:
        return run_in_thread(_open_scorer(self))


@dataclass(slots=True)
class Spent:
    """The calls for one answer so far. All its measures add to it."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


_spent: ContextVar[Spent] = ContextVar("spent")


@dataclass(frozen=True, slots=True, kw_only=True)
class RagasScorer:
    """`metrics` are ragas' objects, by the name of the measure."""

    metrics: Mapping[str, Any]
    requests: asyncio.Semaphore

    async def score(self, answer: MeasuredAnswer) -> Scores:
        inputs, unscored = list_ragas_inputs(answer), start_scores(answer)
        if error := answer.trace.error:
            return replace(unscored, failures=dict.fromkeys(inputs, error))
        _spent.set(spent := Spent())
        outcomes = await asyncio.gather(*(self._score_measure(name, inputs[name]) for name in inputs))
        values = {name: value for name, value in zip(inputs, outcomes, strict=True) if isinstance(value, float)}
        reasons = {name: reason for name, reason in zip(inputs, outcomes, strict=True) if isinstance(reason, str)}
        return replace(unscored, measures=values, failures=reasons, **asdict(spent))

    async def _score_measure(self, name: str, inputs: Mapping[str, Any]) -> float | str:
        """The value, or the reason why there is none."""
        if missing := [key for key, value in inputs.items() if not value]:
            return f"{', '.join(missing)} must not be empty"
        async with self.requests:
            try:
                scored = await asyncio.wait_for(self.metrics[name].ascore(**inputs), TIMEOUT)
            except Exception as error:  # noqa: BLE001 - ragas and its libraries raise classes of their own
                return describe_error(error)[:MAX_REASON_CHARS]
        value = float(scored.value)
        return value if math.isfinite(value) else f"ragas returned {value}"


def list_ragas_inputs(answer: MeasuredAnswer) -> dict[str, dict[str, Any]]:
    """The inputs of each measure that applies, by its name."""
    question, trace = answer.question, answer.trace
    asked = {"user_input": question.text}
    response = {**asked, "response": trace.words}
    contexts = {"retrieved_contexts": [passage.text for passage in trace.passages]}
    inputs: dict[str, dict[str, Any]] = {}
    if not trace.is_refusal and question.answerable is not False:
        inputs |= {"ragas_faithfulness": {**response, **contexts}, "ragas_answer_relevancy": response}
    if question.references and question.answerable is not False:
        referenced = {**asked, "reference": question.references[0], **contexts}
        inputs |= {"ragas_context_precision": referenced, "ragas_context_recall": referenced}
    return inputs


@asynccontextmanager
async def _open_scorer(task: RagasTask) -> AsyncIterator[RagasScorer]:
    os.environ["RAGAS_DO_NOT_TRACK"] = "true"  # read once, when ragas is imported
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    from ragas.llms import llm_factory
    from ragas.metrics.collections import AnswerRelevancy, ContextPrecision, ContextRecall, Faithfulness

    key = os.environ.get("OPENAI_API_KEY", "EMPTY")
    http = DefaultAsyncHttpxClient(event_hooks={"response": [_count_call]})
    async with AsyncOpenAI(base_url=task.url, api_key=key, timeout=TIMEOUT, http_client=http) as client:
        model = llm_factory(
            task.model, provider="openai", client=client, max_tokens=MAX_TOKENS, temperature=0.0, max_retries=1
        )
        embeddings = _adapt_embedder(task.load_embedder())
        metrics = {
            "ragas_faithfulness": Faithfulness(llm=model),
            # at this temperature, further questions would be the same
            "ragas_answer_relevancy": AnswerRelevancy(llm=model, embeddings=embeddings, strictness=1),
            "ragas_context_precision": ContextPrecision(llm=model),
            "ragas_context_recall": ContextRecall(llm=model),
        }
        yield RagasScorer(metrics=metrics, requests=asyncio.Semaphore(MAX_REQUESTS))


async def _count_call(response: "Response") -> None:
    """Counts a response and its tokens for the answer that is scored. ragas returns only values."""
    spent = _spent.get()
    spent.calls += 1
    with suppress(ValidationError):
        usage = CompletionBody.model_validate_json(await response.aread()).token_usage
        if usage:
            spent.prompt_tokens += usage.prompt_tokens
            spent.completion_tokens += usage.completion_tokens


def _adapt_embedder(embedder: QueryEmbedder) -> "BaseRagasEmbedding":
    from ragas.embeddings.base import BaseRagasEmbedding

    class ProfileEmbedding(BaseRagasEmbedding):
        async def aembed_text(self, text: str, **_: Any) -> list[float]:
            row: list[float] = (await embedder.embed([text]))[0].tolist()
            return row

        def embed_text(self, text: str, **options: Any) -> list[float]:
            return asyncio.run(self.aembed_text(text, **options))

    return ProfileEmbedding()
