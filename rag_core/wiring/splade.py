"""Models that weigh terms: which one it is costs little to know, and the model itself is loaded late."""

from typing import Any, Protocol, assert_never

from rag_core.config import PythonObject, SentenceTransformersSplade, SpladeSettings
from rag_core.models.encoders.query_embedder import QuestionWeigher
from rag_core.models.loading import refuse_missing_gpu
from rag_core.protocols import DocumentWeigher
from rag_core.wiring.python import python_object


class Weigher(DocumentWeigher, QuestionWeigher, Protocol):
    """What every such model is: many weigh questions otherwise than documents."""


def fingerprint(settings: SpladeSettings) -> str:
    """Read from the model's files without loading it. ModelError if they are not there."""
    match settings:
        case SentenceTransformersSplade():
            from rag_core.models.encoders.model_files import model_folder, splade_fingerprint

            return splade_fingerprint(model_folder(settings.model))
        case PythonObject():
            own: Any = python_object(settings)
            fingerprint_of_own: str = own.fingerprint
            return fingerprint_of_own
        case _:
            assert_never(settings)


def weigher(settings: SpladeSettings, threads: int = 1) -> Weigher:
    """Loads the model. ModelError if it, or its device, is not there. On a CPU it may take so many `threads`."""
    match settings:
        case SentenceTransformersSplade():
            from rag_core.models.encoders.model_files import model_folder
            from rag_core.models.encoders.splade import SpladeEncoder

            refuse_missing_gpu("splade", settings.device)
            return SpladeEncoder(
                model_folder(settings.model), settings.precision, settings.device, settings.batch_size, threads
            )
        case PythonObject():
            own: Weigher = python_object(settings)
            return own
        case _:
            assert_never(settings)
