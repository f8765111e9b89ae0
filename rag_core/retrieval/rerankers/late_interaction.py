"""A reranker by late interaction: question and text are encoded separately, and compared token by token."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_core.models.loading import translate_load_errors
from rag_core.models.shared_model import BatchScorer, SharedModel
from rag_core.protocols import Pair

if TYPE_CHECKING:
    import torch
    from sentence_transformers import MultiVectorEncoder

_LATE_INTERACTION_TYPES = {"MultiVectorEncoder", "ColBERT"}
_RESERVED_POSITIONS = 2
"""Positions that RoBERTa and related models count but cannot use for tokens."""


def late_interaction_scorer(
    load_model: "Callable[[], MultiVectorEncoder]", batch_size: int
) -> "SharedModel[MultiVectorEncoder]":
    """Scores are MaxSim: the sum, over the question's tokens, of the cosine with the nearest token of the text.

    Khattab and Zaharia, ColBERT, SIGIR 2020.
    """
    return SharedModel("reranker", load_model, _encode_questions, batch_size)


def load_multi_vector_encoder(folder: Path, weights: "torch.dtype", device: str) -> "MultiVectorEncoder":
    """Loads a model that was trained for late interaction, or any other text encoder, of which it uses token vectors.

    Texts are cut only at the length that the encoder can read. Raises ModelError if the model cannot be loaded.
    """
    with translate_load_errors(folder, "model for late interaction"):
        load = _load_trained if _is_trained_for_late_interaction(folder) else _load_text_encoder
        model = load(folder, {"dtype": weights}, device)
        _compare_in_fp32(model)
    return model


def _is_trained_for_late_interaction(folder: Path) -> bool:
    architectures = _read_json(folder / "config.json").get("architectures") or []
    return (
        _read_json(folder / "config_sentence_transformers.json").get("model_type") in _LATE_INTERACTION_TYPES
        or "HF_ColBERT" in architectures
        or any(name.endswith("ForRetrieval") for name in architectures)
    )


def _read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file; empty if the file does not exist."""
    value: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return value


def _load_trained(folder: Path, model_arguments: dict[str, Any], device: str) -> "MultiVectorEncoder":
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(folder), device=device, model_kwargs=model_arguments, local_files_only=True)
    encoder: Any = model[0]
    if getattr(encoder, "document_length", None):
        # the model's own limit is the length of its training passages: longer chunks would be cut silently
        readable_length = encoder.config.max_position_embeddings - _RESERVED_POSITIONS
        encoder.document_length = max(encoder.document_length, readable_length)
    return model


def _load_text_encoder(folder: Path, model_arguments: dict[str, Any], device: str) -> "MultiVectorEncoder":
    """Builds the model from its parts, because the library would add a projection with random weights."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    encoder = Transformer.load(str(folder), model_kwargs=model_arguments, local_files_only=True)
    return MultiVectorEncoder(
        modules=[encoder, MultiVectorMask(), Normalize(module_input_name="token_embeddings")], device=device
    )


def _compare_in_fp32(model: "MultiVectorEncoder") -> None:
    """Makes the model compare vectors in fp32. In bf16, cosines above 1/2 have steps of 1/256, so many would tie."""
    model[0].register_forward_hook(_widen_embeddings)
    for module in list(model)[1:]:
        module.float()


def _widen_embeddings(_module: object, _arguments: object, features: dict[str, Any]) -> dict[str, Any]:
    """The hook of `_compare_in_fp32`. It is a module-level function because copies of the model pickle it."""
    return {**features, "token_embeddings": features["token_embeddings"].float()}


def _encode_questions(model: "MultiVectorEncoder", pairs: Sequence[Pair]) -> BatchScorer:
    """Encodes each distinct question once, for all batches."""
    questions = list(dict.fromkeys(question for question, _ in pairs))
    vectors = dict(zip(questions, model.encode_query(questions, show_progress_bar=False), strict=True))

    def score_batch(batch: Sequence[Pair]) -> list[float]:
        texts = [text for _, text in batch]
        documents = model.encode_document(texts, batch_size=len(texts), show_progress_bar=False)
        batch_vectors = [vectors[question] for question, _ in batch]
        scores: list[float] = model.similarity_pairwise(batch_vectors, documents).tolist()
        return scores

    return score_batch
