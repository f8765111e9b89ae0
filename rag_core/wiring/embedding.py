"""Builders for embedding models. Space and tokenizer are cheap; the model itself is loaded only when it is needed."""

from functools import cache, lru_cache
from typing import Any, Protocol, assert_never

from pydantic import TypeAdapter

from rag_core.answering.generation.confidence import CALIBRATED_ENCODER
from rag_core.config import BertEmbedder, EmbeddingSettings, HashingEmbedder, PythonObject, SentenceTransformersEmbedder
from rag_core.models.encoders.query_embedder import QuestionEncoder
from rag_core.models.loading import check_gpu
from rag_core.protocols import DocumentEmbedder, Tokenizer
from rag_core.types import Space
from rag_core.wiring.python_objects import build_python_object


class Encoder(DocumentEmbedder, QuestionEncoder, Protocol):
    """An embedding model with one method for documents and one for questions: some models prompt them differently."""


class EncoderTokenizer(Tokenizer, Protocol):
    @property
    def special_tokens(self) -> int:
        """The number of tokens that the model adds to every text."""
        ...


def embedding_space(settings: EmbeddingSettings) -> Space:
    """Reads the space from the model's files without loading the model. Raises ModelError if they are missing."""
    match settings:
        case BertEmbedder() | SentenceTransformersEmbedder():
            from rag_core.models.encoders.model_files import model_space

            return model_space(settings.model, settings.document_prompt)
        case HashingEmbedder():
            from rag_core.models.encoders.hashing import hashing_space

            return hashing_space(settings.dimension, settings.window)
        case PythonObject():
            embedder: Any = build_python_object(settings, "embedding", "space")
            space: Space = embedder.space
            return space
        case _:
            assert_never(settings)


def build_tokenizer(settings: EmbeddingSettings) -> EncoderTokenizer:
    match settings:
        case BertEmbedder() | SentenceTransformersEmbedder():
            return _load_tokenizer(settings.model)
        case HashingEmbedder():
            from rag_core.models.encoders.tokens import WordTokenizer

            return WordTokenizer()
        case PythonObject():
            embedder: Any = build_python_object(settings, "embedding", "tokenizer")
            tokenizer: EncoderTokenizer = embedder.tokenizer
            return tokenizer
        case _:
            assert_never(settings)


@lru_cache(maxsize=4)
def _load_tokenizer(model: str) -> EncoderTokenizer:
    from rag_core.models.encoders.model_files import find_model_folder
    from rag_core.models.encoders.tokens import ModelTokenizer

    return ModelTokenizer(find_model_folder(model))


def document_prompt(settings: EmbeddingSettings) -> str:
    """The text that the model reads before every document; it counts against the window."""
    return settings.document_prompt if isinstance(settings, BertEmbedder | SentenceTransformersEmbedder) else ""


def check_device(settings: EmbeddingSettings) -> None:
    """Raises ModelError if the model is configured for a GPU that this process cannot use."""
    if isinstance(settings, BertEmbedder | SentenceTransformersEmbedder):
        check_gpu("embedding", settings.device)


def is_calibrated(settings: EmbeddingSettings) -> bool:
    """True if the confidence of answers was calibrated with this encoder."""
    return isinstance(settings, BertEmbedder) and settings.model == CALIBRATED_ENCODER


def load_shared_encoder(settings: EmbeddingSettings) -> Encoder:
    """The encoder that this process shares for occasional texts, such as questions.

    Raises ModelError if the model or its device is missing.
    """
    return _load_warm_encoder(settings.model_dump_json())


@cache
def _load_warm_encoder(embedding: str) -> Encoder:
    """Loads the encoder and encodes a first text, so that the first question does not wait for one-time work.

    The settings are text, because the arguments of a Python object cannot be hashed.
    """
    encoder = encoder_from_json(embedding)
    encoder.embed_questions(["first"])
    return encoder


def encoder_from_json(embedding: str, threads: int = 1) -> Encoder:
    settings: EmbeddingSettings = TypeAdapter(EmbeddingSettings).validate_json(embedding)
    return build_encoder(settings, threads)


def build_encoder(settings: EmbeddingSettings, threads: int = 1) -> Encoder:
    """Loads the model, which takes seconds and hundreds of megabytes. Raises ModelError if it or its device is missing.

    The model can use `threads` threads; with a GPU they only tokenize.
    """
    check_device(settings)
    match settings:
        case BertEmbedder():
            from rag_core.models.encoders.bert import BertEncoder
            from rag_core.models.encoders.model_files import find_model_folder

            return BertEncoder(
                find_model_folder(settings.model),
                settings.precision,
                settings.device,
                settings.document_prompt,
                settings.query_prompt,
                threads,
            )
        case SentenceTransformersEmbedder():
            from rag_core.models.encoders.model_files import find_model_folder
            from rag_core.models.encoders.sentence_transformers import SentenceTransformersEncoder

            return SentenceTransformersEncoder(
                find_model_folder(settings.model),
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
            encoder: Encoder = build_python_object(settings, "embedding")
            return encoder
        case _:
            assert_never(settings)
