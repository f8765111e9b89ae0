"""The hashing embedder, slowed down so that a test can disturb a job in its middle."""

import time
from collections.abc import Sequence

from rag_core.models.encoders.hashing import HashingEncoder, hashing_space
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.types import Matrix


class Slow:
    """Takes `seconds` for each text."""

    def __init__(self, seconds: float) -> None:
        self.space, self.tokenizer = hashing_space(64, 512), WordTokenizer()
        self._inner, self._seconds = HashingEncoder(64), seconds

    def embed(self, texts: Sequence[str]) -> Matrix:
        time.sleep(self._seconds * len(texts))
        return self._inner.embed(texts)

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        time.sleep(self._seconds * len(texts))
        return self._inner.embed_questions(texts)
