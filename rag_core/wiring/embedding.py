"""Embedding models: their space and tokens, which cost little, and the model itself, which is loaded late."""

from functools import cache
from typing import Any, Protocol, assert_never

from pydantic import TypeAdapter

from rag_core.config import BertEmbedder, EmbeddingSettings, HashingEmbedder, PythonObject, SentenceTransformersEmbedder
from rag_core.models.encoders.query_embedder import QuestionEncoder
from rag_core.models.loading import refuse_missing_gpu
from rag_core.protocols import DocumentEmbedder, Tokenizer
from rag_core.types import Space
from rag_core.wiring.python import python_object


class Encoder(DocumentEmbedder, QuestionEncoder, Protocol):
    """What every embedding object is: it knows documents from questions, because some models prompt them apart."""


class SpecialTokenizer(Tokenizer, Protocol):
    @property
    def special_tokens(self) -> int:
        """How many the model adds to every text."""
        ...


def embedding_space(settings: EmbeddingSettings) -> Space:
    """Read from the model's files without loading it. ModelError if they are not there."""
    match settings:
        case BertEmbedder() | SentenceTransformersEmbedder():
            from rag_core.models.encoders.model_files import space

            return space(settings.model, settings.document_prompt)
        case HashingEmbedder():
            from rag_core.models.encoders.hashing import hashing_space

            return hashing_space(settings.dimension, settings.window)
        case PythonObject():
            own: Any = python_object(settings)
            space_of_own: Space = own.space
            return space_of_own
        case _:
            assert_never(settings)


def tokenizer(settings: EmbeddingSettings) -> SpecialTokenizer:
    match settings:
        case BertEmbedder() | SentenceTransformersEmbedder():
            from rag_core.models.encoders.model_files import model_folder
            from rag_core.models.encoders.tokens import ModelTokenizer

            return ModelTokenizer(model_folder(settings.model))
        case HashingEmbedder():
            from rag_core.models.encoders.tokens import WordTokenizer

            return WordTokenizer()
        case PythonObject():
            own: Any = python_object(settings)
            tokenizer_of_own: SpecialTokenizer = own.tokenizer
            return tokenizer_of_own
        case _:
            assert_never(settings)


def document_prompt(settings: EmbeddingSettings) -> str:
    """What the model is given before every document: it takes room in its window."""
    return settings.document_prompt if isinstance(settings, BertEmbedder | SentenceTransformersEmbedder) else ""


def refuse_missing_device(settings: EmbeddingSettings) -> None:
    """ModelError if the model is to compute on a GPU that this process cannot use."""
    if isinstance(settings, BertEmbedder | SentenceTransformersEmbedder):
        refuse_missing_gpu("embedding", settings.device)


def shared_encoder(settings: EmbeddingSettings) -> Encoder:
    """One a process, for all that encode a text now and then. ModelError if the model, or its device, is not there."""
    return _shared(settings.model_dump_json())


@cache
def _shared(embedding: str) -> Encoder:
    """By settings as text: an object's own arguments have no hash. It has encoded, so that the first question does not
    wait for what a model does once."""
    settings: EmbeddingSettings = TypeAdapter(EmbeddingSettings).validate_json(embedding)
    loaded = encoder(settings)
    loaded.embed_questions(["first"])
    return loaded


def encoder(settings: EmbeddingSettings, threads: int = 1) -> Encoder:
    """Loads the model: seconds, and hundreds of megabytes. ModelError if it, or its device, is not there.

    It may take so many `threads`; beside a GPU they split texts into tokens.
    """
    refuse_missing_device(settings)
    match settings:
        case BertEmbedder():
            from rag_core.models.encoders.bert import BertEncoder
            from rag_core.models.encoders.model_files import model_folder

            return BertEncoder(
                model_folder(settings.model),
                settings.precision,
                settings.device,
                settings.document_prompt,
                settings.query_prompt,
                threads,
            )
        case SentenceTransformersEmbedder():
            from rag_core.models.encoders.model_files import model_folder
            from rag_core.models.encoders.sentence_transformers import SentenceTransformersEncoder

            return SentenceTransformersEncoder(
                model_folder(settings.model),
                settings.precision,
                settings.device,
                settings.batch_size,
                settings.document_prompt,
                settings.query_prompt,
                threads,
            )
        case HashingEmbedder():
            from rag_core.models.encoders.hashing import HashingEncoder

            return HashingEncoder(settings.dimension)
        case PythonObject():
            own: Encoder = python_object(settings)
            return own
        case _:
            assert_never(settings)
