"""Any text encoder that sentence-transformers can load."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from rag_core.models.encoders.precision import choose_dtype
from rag_core.models.loading import translate_load_errors
from rag_core.types import Matrix


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
        """Loads the model, to compute with `threads` threads on a CPU. Raises ModelError if it cannot be loaded.

        With a GPU, the library splits texts into tokens on all CPUs.
        """
        torch.set_num_threads(threads)
        if device.startswith("cuda"):
            os.environ["TOKENIZERS_PARALLELISM"] = "true"
        options = {"dtype": choose_dtype(precision, device)}
        with translate_load_errors(folder, "text encoder"):
            from sentence_transformers import SentenceTransformer

            model = SentenceTransformer(str(folder), device=device, model_kwargs=options, local_files_only=True)
        # rows that are pooled in bf16 differ from those of an fp32 model by up to .003 in cosine, else by .0001
        model[0].register_forward_hook(_cast_features_to_fp32)
        for module in list(model)[1:]:
            module.float()
        self._model = model
        self._batch_size, self._document_prompt, self._query_prompt = batch_size, document_prompt, query_prompt

    def embed(self, texts: Sequence[str]) -> Matrix:
        return self._encode(texts, self._document_prompt)

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self._encode(texts, self._query_prompt)

    def _encode(self, texts: Sequence[str], prompt: str) -> Matrix:
        if not texts:
            return np.empty((0, self._model.get_embedding_dimension() or 0), np.float32)
        rows: Matrix = self._model.encode(
            list(texts),
            prompt=prompt,  # even if it is empty: without one, the library uses the model's default
            batch_size=self._batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        ).astype(np.float32, copy=False)
        return rows


def _cast_features_to_fp32(_module: Any, _arguments: Any, features: dict[str, Any]) -> dict[str, Any]:
    return {**features, "token_embeddings": features["token_embeddings"].float()}
