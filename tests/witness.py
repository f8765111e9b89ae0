"""An embedder that records which processes embed, and waits until enough of them do."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from rag_core.models.encoders.hashing import HashingEncoder, hashing_space
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.types import Matrix

TIMEOUT = 60.0


class Witness:
    """The hashing embedder, with a record of its processes.

    Every process that embeds writes a file to the folder. Its name is the process id, its content the GPUs that Ray
    assigned. A process then waits until there are `processes` files, or until `TIMEOUT`.
    """

    def __init__(self, folder: str, processes: int = 1) -> None:
        self.space, self.tokenizer = hashing_space(64, 512), WordTokenizer()
        self._inner, self._folder, self._processes = HashingEncoder(64), Path(folder), processes
        self._deadline = time.monotonic() + TIMEOUT

    def embed(self, texts: Sequence[str]) -> Matrix:
        (self._folder / str(os.getpid())).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        while len(list(self._folder.iterdir())) < self._processes and time.monotonic() < self._deadline:
            time.sleep(0.01)
        return self._inner.embed(texts)

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self._inner.embed_questions(texts)


def witness_settings(folder: Path, processes: int = 1) -> tuple[str, ...]:
    """Settings with this embedder. The folder must exist and be empty."""
    embedder = (
        "type=python",
        "object=witness:Witness",
        f"arguments.folder={folder}",
        f"arguments.processes={processes}",
    )
    return ("chunking.tokens=24", "chunking.overlap=0", *(f"embedding.{setting}" for setting in embedder))
