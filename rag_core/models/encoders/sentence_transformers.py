"""Any text encoder that sentence-transformers can load."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from rag_core.models.encoders.precision import dtype
from rag_core.models.loading import loading
from rag_core.types import Matrix

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class SentenceTransformersEncoder:
    def __init__(
        self,
        folder: Path,
        precision: Literal["auto", "bf16", "fp32"] = "auto",
        device: str = "cpu",
        batch_size: int = 8,
        document_prompt: str = "",
        query_prompt: str = "",
        threads: int = 1,
    ) -> None:
        """On a CPU it may take so many `threads`. On a GPU the library splits texts into tokens on all CPUs."""
        torch.set_num_threads(threads)
        if device.startswith("cuda"):
            os.environ["TOKENIZERS_PARALLELISM"] = "true"
        self._model = _loaded(folder, dtype(precision, device), device)
        self._batch_size, self._document_prompt, self._query_prompt = batch_size, document_prompt, query_prompt

    def embed(self, texts: Sequence[str]) -> Matrix:
        return self._encoded(texts, self._document_prompt)

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self._encoded(texts, self._query_prompt)

    def _encoded(self, texts: Sequence[str], prompt: str) -> Matrix:
        if not texts:
            return np.empty((0, self._model.get_embedding_dimension() or 0), np.float32)
        rows: Matrix = self._model.encode(
            list(texts),
            prompt=prompt,  # also when empty: without one the library takes the model's default
            batch_size=self._batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        ).astype(np.float32, copy=False)
        return rows


def _loaded(folder: Path, weights: torch.dtype, device: str) -> "SentenceTransformer":
    with loading(folder, "text encoder"):
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder), device=device, model_kwargs={"dtype": weights}, local_files_only=True)
    return _pooled_in_fp32(model)


def _pooled_in_fp32(model: "SentenceTransformer") -> "SentenceTransformer":
    """Pooled in bf16, rows come as far as .003 in cosine from fp32's; pooled in fp32, .0001."""
    model[0].register_forward_hook(_widened)
    for module in list(model)[1:]:
        module.float()
    return model


def _widened(_module: Any, _arguments: Any, features: dict[str, Any]) -> dict[str, Any]:
    return {**features, "token_embeddings": features["token_embeddings"].float()}
