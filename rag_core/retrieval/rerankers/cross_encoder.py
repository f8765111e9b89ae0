"""A cross-encoder reads question and text together: the most exact reranker, and the slowest."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rag_core.errors import ModelError
from rag_core.models.cross_encoder import compute_logits, load_cross_encoder
from rag_core.models.shared_model import BatchScorer, SharedModel
from rag_core.protocols import Pair

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder


def cross_encoder_scorer(loading: "Callable[[], CrossEncoder]", batch_size: int) -> "SharedModel[CrossEncoder]":
    """Scores are the sigmoid of the model's logit, in (0, 1)."""
    return SharedModel("reranker", loading, _scoring, batch_size)


def load_reranking_cross_encoder(folder: Path, weights: "torch.dtype", device: str) -> "CrossEncoder":
    """ModelError if it cannot be loaded, or gives more than one score a pair."""
    model = load_cross_encoder(folder, weights, device)
    if model.num_labels != 1:
        raise ModelError(f"{folder} must give one score a pair, got {model.num_labels}: give a cross-encoder")
    return model


def _scoring(model: "CrossEncoder", _pairs: Sequence[Pair]) -> BatchScorer:
    return partial(_scores, model)


def _scores(model: "CrossEncoder", pairs: Sequence[Pair]) -> list[float]:
    scores: list[float] = compute_logits(model, pairs).sigmoid().tolist()
    return scores
