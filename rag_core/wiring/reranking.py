"""Rerankers. Their models are loaded once a process."""

from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, assert_never

from rag_core.config import (
    CrossEncoderReranker,
    LateInteractionReranker,
    LexicalReranker,
    LlmReranker,
    PythonObject,
    RerankerSettings,
)
from rag_core.errors import ModelError
from rag_core.models.encoders.model_files import model_folder
from rag_core.models.loading import refuse_missing_gpu
from rag_core.models.shared import SharedModel
from rag_core.protocols import Reranker
from rag_core.retrieval.rerankers.cross_encoder import cross_encoder, cross_encoder_pairs
from rag_core.retrieval.rerankers.late_interaction import late_interaction_pairs, multi_vector_encoder
from rag_core.retrieval.rerankers.llm import LlmReranker as LanguageModel
from rag_core.retrieval.rerankers.pairs import PairReranker
from rag_core.wiring.endpoint import client
from rag_core.wiring.python import python_object

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder as LoadedCrossEncoder
    from sentence_transformers import MultiVectorEncoder


def reranker(settings: RerankerSettings) -> Reranker:
    """Loads the model, which may take longer than a question may. If it is not there every question is told so."""
    with suppress(ModelError):
        load(settings)
    match settings:
        case CrossEncoderReranker() | LateInteractionReranker():
            return _over_pairs(settings)
        case LexicalReranker():
            from rag_core.retrieval.rerankers.lexical import LexicalReranker as Lexical

            return Lexical(settings.language)
        case LlmReranker():
            return LanguageModel(client(settings), settings.concurrency)
        case PythonObject():
            own: Reranker = python_object(settings)
            return own
        case _:
            assert_never(settings)


def load(settings: RerankerSettings) -> None:
    """ModelError if the model, or its device, is not there."""
    match settings:
        case CrossEncoderReranker() | LateInteractionReranker():
            reranker_pairs(settings).load()
        case LexicalReranker() | LlmReranker() | PythonObject():
            pass
        case _:
            assert_never(settings)


@cache
def _over_pairs(settings: CrossEncoderReranker | LateInteractionReranker) -> Reranker:
    return PairReranker(reranker_pairs(settings))


@cache
def reranker_pairs(settings: CrossEncoderReranker | LateInteractionReranker) -> SharedModel[Any]:
    """Of this process; its `load`, or the first request, loads the model."""
    match settings:
        case CrossEncoderReranker():
            return cross_encoder_pairs(partial(_loaded_cross_encoder, settings), settings.batch_size)
        case LateInteractionReranker():
            return late_interaction_pairs(partial(_loaded_late_interaction, settings), settings.batch_size)
        case _:
            assert_never(settings)


def _loaded_cross_encoder(settings: CrossEncoderReranker) -> "LoadedCrossEncoder":
    from rag_core.models.encoders.precision import dtype

    refuse_missing_gpu("reranker", settings.device)
    weights = dtype(settings.precision, settings.device)
    return cross_encoder(model_folder(settings.model), weights, settings.device)


def _loaded_late_interaction(settings: LateInteractionReranker) -> "MultiVectorEncoder":
    from rag_core.models.encoders.precision import dtype

    refuse_missing_gpu("reranker", settings.device)
    weights = dtype(settings.precision, settings.device)
    return multi_vector_encoder(model_folder(settings.model), weights, settings.device)
