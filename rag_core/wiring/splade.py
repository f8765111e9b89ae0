"""Builders for models that weigh terms. The fingerprint is cheap; the model is loaded only when it is needed."""

from functools import cache
from typing import Any, Protocol, assert_never

from pydantic import TypeAdapter

from rag_core.config import BertSplade, PythonObject, SentenceTransformersSplade, SpladeSettings
from rag_core.models.encoders.query_embedder import QuestionWeigher
from rag_core.models.loading import check_gpu
from rag_core.protocols import DocumentWeigher
from rag_core.wiring.python_objects import build_python_object


class Weigher(DocumentWeigher, QuestionWeigher, Protocol):
    """A SPLADE model with separate methods for documents and questions, because many models weigh them differently."""


def weigher_fingerprint(settings: SpladeSettings) -> str:
    """Reads the fingerprint from the model's files without loading the model. Raises ModelError if they are missing."""
    match settings:
        case BertSplade() | SentenceTransformersSplade():
            from rag_core.models.encoders.model_files import find_model_folder, splade_fingerprint

            return splade_fingerprint(find_model_folder(settings.model))
        case PythonObject():
            model: Any = build_python_object(settings, "splade", "fingerprint")
            fingerprint: str = model.fingerprint
            return fingerprint
        case _:
            assert_never(settings)


def load_shared_weigher(settings: SpladeSettings) -> Weigher:
    """The model that this process shares for questions. Raises the errors of `build_weigher`."""
    return _load_weigher(settings.model_dump_json())


@cache
def _load_weigher(splade: str) -> Weigher:
    """The settings are text, because the arguments of a Python object cannot be hashed."""
    settings: SpladeSettings = TypeAdapter(SpladeSettings).validate_json(splade)
    return build_weigher(settings)


def build_weigher(settings: SpladeSettings, threads: int = 1) -> Weigher:
    """Loads the model, which can use `threads` threads of a CPU. Raises ModelError if it or its device is missing."""
    match settings:
        case BertSplade():
            from rag_core.models.encoders.bert_splade import BertSpladeEncoder
            from rag_core.models.encoders.model_files import find_model_folder

            check_gpu("splade", settings.device)
            return BertSpladeEncoder(find_model_folder(settings.model), settings.precision, settings.device, threads)
        case SentenceTransformersSplade():
            from rag_core.models.encoders.model_files import find_model_folder
            from rag_core.models.encoders.splade import SpladeEncoder

            check_gpu("splade", settings.device)
            return SpladeEncoder(
                find_model_folder(settings.model), settings.precision, settings.device, settings.batch_size, threads
            )
        case PythonObject():
            weigher: Weigher = build_python_object(settings, "splade")
            return weigher
        case _:
            assert_never(settings)
