"""The preparation of a question."""

import re

from rag_core.config import GenerationSettings, OpenAIGenerator
from rag_core.contract.indexing import builtin_errors, embed_with_retries
from rag_core.contract.models import call_models
from rag_core.contract.stage_log import log_stage, warn
from rag_core.errors import GenerationError, RagError
from rag_core.retrieval.query import expansion
from rag_core.settings import load_settings
from rag_core.stage import stage
from rag_core.wiring.embedding import load_shared_encoder
from rag_core.wiring.endpoint import build_client
from rag_core.wiring.models import RemoteModels

EXPANSION_TIMEOUT = 5.0

# control characters, and surrogates, which UTF-8 cannot encode
_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@log_stage("expand_query")
def expand_query(question: str, strict: bool = False) -> str:
    """Appends up to 8 synonyms and meanings of abbreviations, which the profile's language model suggests.

    Returns the question alone, and logs a warning, if the profile has no language model, if the model fails or runs out
    of time, or if the question exceeds 1000 characters. If `strict`, raises RuntimeError instead.
    """
    try:
        return _expand_with_model(question, load_settings().generation)
    except RagError as error:
        if strict:
            raise RuntimeError(f"the question cannot be expanded: {error}") from error
        warn(f"the question is not expanded: {error}")
        return question


@log_stage("preprocess_query")
def preprocess_query(question: str | None, enable_expansion: bool = False) -> str:
    """Replaces white space and control characters by single spaces, and expands the question if that is enabled.

    Words stay unchanged, because each method analyzes them differently. Returns "" for None; raises no exception.
    """
    plain = " ".join(_UNREADABLE.sub(" ", question or "").split())
    return expand_query(plain) if enable_expansion and plain else plain


@log_stage("get_query_embedding")
def get_query_embedding(question: str) -> list[float]:
    """A vector of length 1. Raises RuntimeError if the model cannot be loaded or reached."""
    check_question(question)
    with builtin_errors("the question cannot be embedded"):
        encoder = load_shared_encoder(load_settings().embedding)
        vector: list[float] = embed_with_retries(encoder.embed_questions, [question])[0].tolist()
        return vector


def check_question(question: str) -> None:
    """Raises ValueError if the question has no words."""
    if not question.strip():
        raise ValueError(f"question must not be empty, got {question!r}")


def _expand_with_model(question: str, generation: GenerationSettings) -> str:
    if not isinstance(generation, OpenAIGenerator):
        raise GenerationError(f"generation.type must be openai (a language model), got {generation.type}")

    async def expand(remote: RemoteModels) -> str:
        async with stage("expand", EXPANSION_TIMEOUT):
            return await expansion.expand_question(build_client(generation, remote.pool), question)

    return call_models(expand)
