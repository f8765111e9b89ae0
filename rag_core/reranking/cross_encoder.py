"""A cross-encoder reads question and text together: the most exact reranker, and the slowest."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rag_core.errors import ModelError
from rag_core.reranking.loading import loading
from rag_core.reranking.model import SharedModel

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder


class CrossEncoderReranker:
    """Scores are the sigmoid of the model's logit, in (0, 1). What is too long for its window is cut at its end."""

    def __init__(self, loading: Callable[[], "CrossEncoder"], batch_size: int) -> None:
        self._model, self._batch_size = SharedModel(loading), batch_size

    def load(self) -> None:
        """What the first question would wait for otherwise. ModelError if the model, or its device, is not there."""
        self._model.load()

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        return await self._model.score(lambda model: partial(_scores, model, question), texts, self._batch_size)


def cross_encoder(folder: Path, weights: "torch.dtype", device: str) -> "CrossEncoder":
    """ModelError if it cannot be loaded, or gives more than one score a pair."""
    with loading(folder, "cross-encoder", device):
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(str(folder), device=device, model_kwargs={"dtype": weights}, local_files_only=True)
    if model.num_labels != 1:
        raise ModelError(f"{folder} must give one score a pair, got {model.num_labels}: give a cross-encoder")
    return _scoring_in_fp32(model)


def _scoring_in_fp32(model: "CrossEncoder") -> "CrossEncoder":
    """In bf16 a score above 8 has steps of 1/16: many candidates would tie."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module.out_features == 1:
            module.float().register_forward_pre_hook(_widened)
    return model


def _widened(_module: object, inputs: "tuple[torch.Tensor]") -> "tuple[torch.Tensor]":
    return (inputs[0].float(),)


def _scores(model: "CrossEncoder", question: str, texts: Sequence[str]) -> list[float]:
    logits = model.predict(
        [(question, text) for text in texts],
        batch_size=len(texts),
        activation_fn=_as_they_are,
        show_progress_bar=False,
        convert_to_tensor=True,
    )
    # in 64 bits: in 32 all logits above 17 would tie at 1
    scores: list[float] = logits.cpu().double().sigmoid().tolist()
    return scores


def _as_they_are(logits: "torch.Tensor") -> "torch.Tensor":
    return logits
