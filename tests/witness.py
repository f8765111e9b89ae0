"""An embedder that tells which processes embedded, and waits until enough of them do."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from rag_core.models.encoders.hashing import HashingEncoder, hashing_space
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.types import Matrix

PATIENCE = 60.0


class Witness:
    """The hashing embedder. Every process that embeds leaves a file in the folder, named by its id, that says what Ray
    gave it; none goes on before `among` of them are there, or it has waited long enough."""

    def __init__(self, folder: str, among: int = 1) -> None:
        self.space, self.tokenizer = hashing_space(64, 512), WordTokenizer()
        self._inner, self._folder, self._among = HashingEncoder(64), Path(folder), among
        self._deadline = time.monotonic() + PATIENCE

    def embed(self, texts: Sequence[str]) -> Matrix:
        (self._folder / str(os.getpid())).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        while len(list(self._folder.iterdir())) < self._among and time.monotonic() < self._deadline:
            time.sleep(0.01)
        return self._inner.embed(texts)

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self._inner.embed_questions(texts)


def witness_settings(folder: Path, among: int = 1) -> tuple[str, ...]:
    """Settings that embed with it. The folder must be there, and empty."""
    embedder = ("type=python", "object=witness:Witness", f"arguments.folder={folder}", f"arguments.among={among}")
    return ("chunking.tokens=24", "chunking.overlap=0", *(f"embedding.{setting}" for setting in embedder))
