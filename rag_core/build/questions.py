"""The encoder of questions. It is loaded once a process, whoever asks with it."""

from functools import cache

from pydantic import TypeAdapter

from rag_core.build.embedding import encoder
from rag_core.config import EmbeddingSettings
from rag_core.ingestion.embedding.questions import Questions


def questions(settings: EmbeddingSettings) -> Questions:
    """ModelError if the model, or its device, is not there."""
    return _loaded(settings.model_dump_json())


@cache
def _loaded(embedding: str) -> Questions:
    """By settings as text: an object's own arguments have no hash."""
    settings: EmbeddingSettings = TypeAdapter(EmbeddingSettings).validate_json(embedding)
    return Questions(encoder(settings))
