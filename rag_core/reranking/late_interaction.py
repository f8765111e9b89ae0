"""Late interaction: question and text are encoded apart, and meet token by token."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_core.models.loading import loading
from rag_core.models.shared import SharedModel

if TYPE_CHECKING:
    import torch
    from sentence_transformers import MultiVectorEncoder

_LATE_INTERACTION = {"MultiVectorEncoder", "ColBERT"}


class LateInteractionReranker:
    """Scores are MaxSim: for each token of the question its nearest token's cosine, summed (Khattab and Zaharia,
    ColBERT, SIGIR 2020). What is too long for the model's window is cut at its end."""

    def __init__(self, loading: Callable[[], "MultiVectorEncoder"], batch_size: int) -> None:
        self._model, self._batch_size = SharedModel("reranker", loading), batch_size

    def load(self) -> None:
        """What the first question would wait for otherwise. ModelError if the model, or its device, is not there."""
        self._model.load()

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        return await self._model.score(
            lambda model: partial(_scores, model, _asked(model, question)), texts, self._batch_size
        )


def multi_vector_encoder(folder: Path, weights: "torch.dtype", device: str) -> "MultiVectorEncoder":
    """A model trained for late interaction as it is; of any other text encoder, the vectors of its tokens.
    ModelError if it cannot be loaded."""
    with loading(folder, "model for late interaction"):
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

    return MultiVectorEncoder(str(folder), device=device, model_kwargs=model_arguments, local_files_only=True)


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


def _asked(model: "MultiVectorEncoder", question: str) -> list["torch.Tensor"]:
    asked: list[torch.Tensor] = model.encode_query([question], show_progress_bar=False)
    return asked


def _scores(model: "MultiVectorEncoder", question: list["torch.Tensor"], texts: Sequence[str]) -> list[float]:
    documents = model.encode_document(list(texts), batch_size=len(texts), show_progress_bar=False)
    (scores,) = model.similarity(question, documents).tolist()
    row: list[float] = scores
    return row
