"""How a document is read, as a fingerprint: when it changes, exactly the documents that it concerns are read again."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from rag_core.types import Space, StoredDocument

CHUNKING_VERSION = 1
"""Raised when a chunker cuts the same text in another way."""
LIMITS = "|"
"""What stands between a fingerprint and the limits."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """`parsing` tells for an uri how it would be parsed; `chunking` is the chunker's settings as text, and `limits` are
    the settings that decide whether a document can be read, not how."""

    parsing: Callable[[str], str]
    chunking: str
    space: Space
    limits: str = ""

    def of(self, uri: str) -> str:
        fingerprint = _fingerprint(self.parsing(uri), self.chunking, self.space.fingerprint)
        return f"{fingerprint}{LIMITS}{self.limits}" if self.limits else fingerprint


def outdated(document: StoredDocument, recipe: str) -> bool:
    """Whether it would be read in another way today. Other limits concern only what they may have kept out."""
    if document.status == "failed":
        return document.recipe != recipe
    return document.recipe.partition(LIMITS)[0] != recipe.partition(LIMITS)[0]


@lru_cache(maxsize=4096)
def _fingerprint(*parts: str) -> str:
    return blake2b("\x1f".join((str(CHUNKING_VERSION), *parts)).encode(), digest_size=8).hexdigest()
