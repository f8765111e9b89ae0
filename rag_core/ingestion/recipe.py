"""The recipe of a document: a fingerprint of how it is read. Documents whose recipe has changed are read again."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from rag_core.types import Space, StoredDocument

CHUNKING_VERSION = 2
"""A number to increase when a chunker splits the same text differently."""
LIMITS_SEPARATOR = "|"
"""The character between a fingerprint and the limits."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings that decide how documents are read.

    `describe_parsing` returns, for a uri, a text that identifies its parser. `chunking` holds the chunker's settings as
    text. `limits` holds the settings that decide if a document can be read, but not how.
    """

    describe_parsing: Callable[[str], str]
    chunking: str
    space: Space
    limits: str = ""

    def fingerprint(self, uri: str) -> str:
        """The recipe of one document, followed by the limits if there are any."""
        fingerprint = _hash_parts(self.describe_parsing(uri), self.chunking, self.space.fingerprint)
        return f"{fingerprint}{LIMITS_SEPARATOR}{self.limits}" if self.limits else fingerprint


def is_outdated(document: StoredDocument, recipe: str) -> bool:
    """True if the document would be read differently now. Changed limits concern only documents that failed."""
    if document.status == "failed":
        return document.recipe != recipe
    return document.recipe.partition(LIMITS_SEPARATOR)[0] != recipe.partition(LIMITS_SEPARATOR)[0]


@lru_cache(maxsize=4096)
def _hash_parts(*parts: str) -> str:
    return blake2b("\x1f".join((str(CHUNKING_VERSION), *parts)).encode(), digest_size=8).hexdigest()
