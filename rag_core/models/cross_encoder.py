"""Sequence classifiers that read two texts together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rag_core.models.loading import translate_load_errors
from rag_core.protocols import Pair

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder


def load_cross_encoder(folder: Path, weights: "torch.dtype", device: str) -> "CrossEncoder":
    """Loads a model that computes its scores in fp32. Raises ModelError if it cannot be loaded."""
    with translate_load_errors(folder, "cross-encoder"):
        import torch
        from sentence_transformers import CrossEncoder

        options = {"dtype": weights}
        model: CrossEncoder = CrossEncoder(str(folder), device=device, model_kwargs=options, local_files_only=True)
    for module in model.modules():
        # in bf16, a score above 8 has steps of 1/16: many candidates would tie
        if isinstance(module, torch.nn.Linear) and module.out_features == model.num_labels:
            module.float().register_forward_pre_hook(_cast_input_to_fp32)
    return model


def compute_logits(model: "CrossEncoder", pairs: Sequence[Pair]) -> "torch.Tensor":
    """Computes the logits of all pairs in one batch; pairs that are too long are cut.

    Shape (pairs,) if the model has one label, else (pairs, labels).
    """
    scores: torch.Tensor = model.predict(
        list(pairs),
        batch_size=len(pairs),
        activation_fn=_return_unchanged,
        show_progress_bar=False,
        convert_to_tensor=True,
    )
    # in 64 bits: in 32 all logits above 17 would tie at 1
    return scores.cpu().double()


def _cast_input_to_fp32(_module: object, inputs: "tuple[torch.Tensor]") -> "tuple[torch.Tensor]":
    return (inputs[0].float(),)


def _return_unchanged(logits: "torch.Tensor") -> "torch.Tensor":
    return logits
