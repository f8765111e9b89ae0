"""A reranker by a cross-encoder, which reads question and text together: the most accurate one, and the slowest."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rag_core.errors import ModelError
from rag_core.models.cross_encoder import compute_logits, load_cross_encoder
from rag_core.models.shared_model import BatchScorer, SharedModel
from rag_core.protocols import Pair

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder


def cross_encoder_scorer(load_model: "Callable[[], CrossEncoder]", batch_size: int) -> "SharedModel[CrossEncoder]":
    """Scores are the sigmoid of the model's logit, in (0, 1)."""

    def prepare(model: "CrossEncoder", _pairs: Sequence[Pair]) -> BatchScorer:
        return lambda pairs: compute_logits(model, pairs).sigmoid().tolist()

    return SharedModel("reranker", load_model, prepare, batch_size)


def load_reranking_cross_encoder(folder: Path, weights: "torch.dtype", device: str) -> "CrossEncoder":
    """Loads the model. Raises ModelError if it cannot be loaded, or returns more than one score per pair."""
    model = load_cross_encoder(folder, weights, device)
    if model.num_labels != 1:
        raise ModelError(
            f"the model in {folder} must return one score per pair, got {model.num_labels}: use a cross-encoder"
        )
    return model
