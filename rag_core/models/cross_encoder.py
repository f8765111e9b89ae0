"""Sequence classifiers that read two texts together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rag_core.models.loading import loading
from rag_core.protocols import Pair

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder


def loaded_cross_encoder(folder: Path, weights: "torch.dtype", device: str) -> "CrossEncoder":
    """ModelError if it cannot be loaded."""
    with loading(folder, "cross-encoder"):
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(str(folder), device=device, model_kwargs={"dtype": weights}, local_files_only=True)
    return _scoring_in_fp32(model)


def logits(model: "CrossEncoder", pairs: Sequence[Pair]) -> "torch.Tensor":
    """Shape (pairs,) of a model with one label, else (pairs, labels); in one batch. What is too long is cut."""
    scores: torch.Tensor = model.predict(
        list(pairs),
        batch_size=len(pairs),
        activation_fn=_as_they_are,
        show_progress_bar=False,
        convert_to_tensor=True,
    )
    # in 64 bits: in 32 all logits above 17 would tie at 1
    return scores.cpu().double()


def _scoring_in_fp32(model: "CrossEncoder") -> "CrossEncoder":
    """In bf16 a score above 8 has steps of 1/16: many candidates would tie."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module.out_features == model.num_labels:
            module.float().register_forward_pre_hook(_widened)
    return model


def _widened(_module: object, inputs: "tuple[torch.Tensor]") -> "tuple[torch.Tensor]":
    return (inputs[0].float(),)


def _as_they_are(logits: "torch.Tensor") -> "torch.Tensor":
    return logits
