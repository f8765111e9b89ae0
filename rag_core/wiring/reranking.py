"""Builders for rerankers. Each process loads a reranker's model once."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from rag_core.config import (
    CrossEncoderReranker,
    LateInteractionReranker,
    LexicalReranker,
    LlmReranker,
    PythonObject,
    RerankerSettings,
)
from rag_core.errors import ModelError
from rag_core.models.encoders.model_files import find_model_folder
from rag_core.models.endpoint import HttpPool
from rag_core.models.loading import check_gpu
from rag_core.models.shared_model import SharedModel
from rag_core.protocols import Reranker
from rag_core.retrieval.rerankers.cross_encoder import cross_encoder_scorer, load_reranking_cross_encoder
from rag_core.retrieval.rerankers.late_interaction import late_interaction_scorer, load_multi_vector_encoder
from rag_core.retrieval.rerankers.llm import LlmReranker as LanguageModel
from rag_core.retrieval.rerankers.pairs import PairReranker
from rag_core.wiring.endpoint import build_client
from rag_core.wiring.python_objects import build_python_object

if TYPE_CHECKING:
    import torch

M = TypeVar("M")


def build_reranker(settings: RerankerSettings, pool: HttpPool) -> Reranker:
    """Builds the reranker and loads its model, which can take longer than a question's time limit.

    A missing model raises no error here: each call of the reranker raises ModelError.
    """
    with suppress(ModelError):
        load_reranker(settings)
    match settings:
        case CrossEncoderReranker() | LateInteractionReranker():
            return _get_pair_reranker(settings)
        case LexicalReranker():
            from rag_core.retrieval.rerankers.lexical import LexicalReranker as Lexical

            return Lexical(settings.language)
        case LlmReranker():
            return LanguageModel(build_client(settings, pool), settings.concurrency)
        case PythonObject():
            reranker: Reranker = build_python_object(settings, "reranker", "score")
            return reranker
        case _:
            assert_never(settings)


def load_reranker(settings: RerankerSettings) -> None:
    """Loads the model, if the reranker has one in this process. Raises ModelError if it or its device is missing."""
    match settings:
        case CrossEncoderReranker() | LateInteractionReranker():
            reranker_model(settings).load()
        case LexicalReranker() | LlmReranker() | PythonObject():
            pass
        case _:
            assert_never(settings)


@cache
def _get_pair_reranker(settings: CrossEncoderReranker | LateInteractionReranker) -> Reranker:
    return PairReranker(reranker_model(settings))


@cache
def reranker_model(settings: CrossEncoderReranker | LateInteractionReranker) -> SharedModel[Any]:
    """The model that this process shares. Its `load`, or the first request, loads it."""
    match settings:
        case CrossEncoderReranker():
            load = partial(_load_reranker_model, settings, load_reranking_cross_encoder)
            return cross_encoder_scorer(load, settings.batch_size)
        case LateInteractionReranker():
            load_encoder = partial(_load_reranker_model, settings, load_multi_vector_encoder)
            return late_interaction_scorer(load_encoder, settings.batch_size)
        case _:
            assert_never(settings)


def _load_reranker_model(
    settings: CrossEncoderReranker | LateInteractionReranker, load: "Callable[[Path, torch.dtype, str], M]"
) -> M:
    from rag_core.models.encoders.precision import choose_dtype

    check_gpu("reranker", settings.device)
    dtype = choose_dtype(settings.precision, settings.device)
    return load(find_model_folder(settings.model), dtype, settings.device)
