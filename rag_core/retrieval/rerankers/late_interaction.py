"""Late interaction: question and text are encoded apart, and meet token by token."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_core.models.loading import translate_load_errors
from rag_core.models.shared_model import BatchScorer, SharedModel
from rag_core.protocols import Pair

if TYPE_CHECKING:
    import torch
    from sentence_transformers import MultiVectorEncoder

_LATE_INTERACTION = {"MultiVectorEncoder", "ColBERT"}
_RESERVED = 2
"""Positions that encoders of RoBERTa's kind count, but do not use."""


def late_interaction_scorer(
    loading: "Callable[[], MultiVectorEncoder]", batch_size: int
) -> "SharedModel[MultiVectorEncoder]":
    """Scores are MaxSim: for each token of the question its nearest token's cosine, summed (Khattab and Zaharia,
    ColBERT, SIGIR 2020)."""
    return SharedModel("reranker", loading, _scoring, batch_size)


def load_multi_vector_encoder(folder: Path, weights: "torch.dtype", device: str) -> "MultiVectorEncoder":
    """A model trained for late interaction, reading as much as its encoder can; of any other text encoder, the vectors
    of its tokens. ModelError if it cannot be loaded."""
    with translate_load_errors(folder, "model for late interaction"):
        made = _trained if _is_trained(folder) else _of_tokens
        return _meeting_in_fp32(made(folder, {"dtype": weights}, device))


def _is_trained(folder: Path) -> bool:
    architectures = _json(folder / "config.json").get("architectures") or []
    return (
        _json(folder / "config_sentence_transformers.json").get("model_type") in _LATE_INTERACTION
        or "HF_ColBERT" in architectures
        or any(name.endswith("ForRetrieval") for name in architectures)
    )


def _json(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return read


def _trained(folder: Path, model_arguments: dict[str, Any], device: str) -> "MultiVectorEncoder":
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(folder), device=device, model_kwargs=model_arguments, local_files_only=True)
    return _reading_whole_passages(model)


def _reading_whole_passages(model: "MultiVectorEncoder") -> "MultiVectorEncoder":
    """A length for documents is that of the training's passages: chunks may be longer, and would be cut untold."""
    encoder: Any = model[0]
    if getattr(encoder, "document_length", None):
        encoder.document_length = max(encoder.document_length, encoder.config.max_position_embeddings - _RESERVED)
    return model


def _of_tokens(folder: Path, model_arguments: dict[str, Any], device: str) -> "MultiVectorEncoder":
    """The library itself would add a projection with random weights."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    encoder = Transformer.load(str(folder), model_kwargs=model_arguments, local_files_only=True)
    return MultiVectorEncoder(
        modules=[encoder, MultiVectorMask(), Normalize(module_input_name="token_embeddings")], device=device
    )


def _meeting_in_fp32(model: "MultiVectorEncoder") -> "MultiVectorEncoder":
    """In bf16 a cosine above 1/2 has steps of 1/256: many candidates would tie."""
    model[0].register_forward_hook(_widened)
    for module in list(model)[1:]:
        module.float()
    return model


def _widened(_module: object, _arguments: object, features: dict[str, Any]) -> dict[str, Any]:
    return {**features, "token_embeddings": features["token_embeddings"].float()}


def _scoring(model: "MultiVectorEncoder", pairs: Sequence[Pair]) -> BatchScorer:
    """Each question is encoded once."""
    questions = list(dict.fromkeys(question for question, _ in pairs))
    encoded = model.encode_query(questions, show_progress_bar=False)
    return partial(_scores, model, dict(zip(questions, encoded, strict=True)))


def _scores(model: "MultiVectorEncoder", asked: "Mapping[str, torch.Tensor]", pairs: Sequence[Pair]) -> list[float]:
    texts = [text for _, text in pairs]
    documents = model.encode_document(texts, batch_size=len(texts), show_progress_bar=False)
    scores: list[float] = model.similarity_pairwise([asked[question] for question, _ in pairs], documents).tolist()
    return scores
