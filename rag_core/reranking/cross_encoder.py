"""A cross-encoder reads question and text together: the most exact reranker, and the slowest."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rag_core.errors import ModelError
from rag_core.models.cross_encoder import loaded_cross_encoder, logits
from rag_core.models.shared import SharedModel

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder


class CrossEncoderReranker:
    """Scores are the sigmoid of the model's logit, in (0, 1). What is too long for its window is cut at its end."""

    def __init__(self, loading: Callable[[], "CrossEncoder"], batch_size: int) -> None:
        self._model, self._batch_size = SharedModel("reranker", loading), batch_size

    def load(self) -> None:
        """What the first question would wait for otherwise. ModelError if the model, or its device, is not there."""
        self._model.load()

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        return await self._model.score(lambda model: partial(_scores, model, question), texts, self._batch_size)


def cross_encoder(folder: Path, weights: "torch.dtype", device: str) -> "CrossEncoder":
    """ModelError if it cannot be loaded, or gives more than one score a pair."""
    model = loaded_cross_encoder(folder, weights, device)
    if model.num_labels != 1:
        raise ModelError(f"{folder} must give one score a pair, got {model.num_labels}: give a cross-encoder")
    return model


def _scores(model: "CrossEncoder", question: str, texts: Sequence[str]) -> list[float]:
    scores: list[float] = logits(model, [(question, text) for text in texts]).sigmoid().tolist()
    return scores
