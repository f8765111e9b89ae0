"""The recipe of a document: a fingerprint of how it is read. Documents whose recipe has changed are read again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote, unquote

from rag_core.types import Space, StoredDocument

CHUNKING_VERSION = 2
"""A number to increase when a chunker splits the same text differently."""
LIMITS_SEPARATOR = "|"
"""The character between a fingerprint and the limits."""
LABEL_SEPARATOR = " "
"""The character between a fingerprint and the label of the document's own profile."""
HASH_SEPARATOR = ":"
"""The character between a profile and the hash of its settings in a label. A profile that was not used has no hash."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings that decide how documents are read.

    `describe_parsing` returns, for a uri, a text that identifies its parser. `chunking` holds the chunker's settings as
    text. `limits` holds the settings that decide if a document can be read, but not how. `labels` are those of the
    profiles that can be detected for single documents, by profile.
    """

    describe_parsing: Callable[[str], str]
    chunking: str
    space: Space
    limits: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def fingerprint(self, uri: str) -> str:
        """The recipe of one document, followed by the limits if there are any. Reading it can add a label."""
        fingerprint = _hash_parts(self.describe_parsing(uri), self.chunking, self.space.fingerprint)
        return f"{fingerprint}{LIMITS_SEPARATOR}{self.limits}" if self.limits else fingerprint

    def recompute(self, document: StoredDocument) -> str:
        """The present recipe of a stored document with the profile that was detected for it when it was read."""
        recipe = self.fingerprint(document.entry.uri)
        label = find_label(document.recipe)
        return with_label(recipe, self.labels.get(find_profile(label), "")) if label else recipe


def make_label(profile: str, settings: str) -> str:
    """The label of a profile. `settings` are those that its documents depend on, as text; empty if it is not used."""
    name = quote(profile, safe="")
    return f"{name}{HASH_SEPARATOR}{blake2b(settings.encode(), digest_size=4).hexdigest()}" if settings else name


def find_profile(label: str) -> str:
    return unquote(label.partition(HASH_SEPARATOR)[0])


def find_label(recipe: str) -> str:
    """The label of the document's own profile; empty if it has none."""
    return recipe.partition(LIMITS_SEPARATOR)[0].partition(LABEL_SEPARATOR)[2]


def with_label(recipe: str, label: str) -> str:
    """The recipe with this label instead of its own."""
    head, limits_separator, limits = recipe.partition(LIMITS_SEPARATOR)
    fingerprint = head.partition(LABEL_SEPARATOR)[0]
    return (f"{fingerprint}{LABEL_SEPARATOR}{label}" if label else fingerprint) + limits_separator + limits


def is_outdated(document: StoredDocument, recipe: str) -> bool:
    """True if the document would be read differently now. Changed limits concern only documents that failed."""
    if document.status == "failed":
        return document.recipe != recipe
    return document.recipe.partition(LIMITS_SEPARATOR)[0] != recipe.partition(LIMITS_SEPARATOR)[0]


@lru_cache(maxsize=4096)
def _hash_parts(*parts: str) -> str:
    return blake2b("\x1f".join((str(CHUNKING_VERSION), *parts)).encode(), digest_size=8).hexdigest()
