"""Retrievers."""

from typing import assert_never

from rag_core.build.embedding import embedding_space, encoder
from rag_core.build.python import python_object
from rag_core.config import DenseRetriever, PythonObject, Settings
from rag_core.ingestion.embedding.questions import Questions
from rag_core.protocols import Retriever
from rag_core.retrieval.dense import DenseRetriever as Dense
from rag_core.storage.corpus import CorpusReader


def retriever(settings: Settings, corpus: CorpusReader) -> Retriever:
    """Loads the models that it needs."""
    match settings.retrieval:
        case DenseRetriever():
            return Dense(corpus, Questions(encoder(settings.embedding)), embedding_space(settings.embedding))
        case PythonObject() as chosen:
            own: Retriever = python_object(chosen)
            return own
        case _:
            assert_never(settings.retrieval)
