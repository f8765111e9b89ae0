"""The cache of encoded texts that several parts of a request encode, such as the question."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from rag_core.protocols import QueryEmbedder
from rag_core.types import Matrix

MAX_CACHED_TEXTS = 2_048
"""Three megabytes of vectors with 384 numbers."""


class CachedEmbedder:
    """A QueryEmbedder that encodes the missing texts of a call together, and keeps the most recently used vectors."""

    def __init__(self, embedder: QueryEmbedder, size: int = MAX_CACHED_TEXTS) -> None:
        self._embedder, self._size = embedder, size
        self._vectors: OrderedDict[str, Matrix] = OrderedDict()

    async def embed(self, texts: Sequence[str]) -> Matrix:
        # Read first: while the others are encoded, another call can remove these from the cache.
        vectors = {text: self._vectors[text] for text in texts if text in self._vectors}
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]
        if missing:
            vectors |= zip(missing, await self._embedder.embed(missing), strict=True)
        for text in texts:
            self._vectors[text] = vectors[text]
            self._vectors.move_to_end(text)
        while len(self._vectors) > self._size:
            self._vectors.popitem(last=False)
        return np.stack([vectors[text] for text in texts])
