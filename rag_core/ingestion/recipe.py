"""How a document is read, as a fingerprint: when it changes, exactly the documents that it concerns are read again."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from rag_core.types import Space

CHUNKING_VERSION = 1
"""Raised when a chunker cuts the same text in another way."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """`parsing` tells for an uri how it would be parsed; `chunking` is the chunker's settings as text."""

    parsing: Callable[[str], str]
    chunking: str
    space: Space

    def of(self, uri: str) -> str:
        return _fingerprint(self.parsing(uri), self.chunking, self.space.fingerprint)


@lru_cache(maxsize=4096)
def _fingerprint(*parts: str) -> str:
    return blake2b("\x1f".join((str(CHUNKING_VERSION), *parts)).encode(), digest_size=8).hexdigest()
