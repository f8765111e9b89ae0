"""The languages of claims and passages: words of different languages cannot be compared."""

from collections.abc import Sequence
from functools import lru_cache

from rag_core.text.language import identify_language, rank_languages
from rag_core.types import Passage

CLEAR_LEAD = 10.0
"""The lead, in nats, of a claim's likeliest language over those of its passages that leaves no doubt.

In the Universal Declaration of Human Rights in 16 languages, no sentence has it over its own language, nor have its
first words. The first three words of 98.6 % have it over a language that is not theirs.
"""

MAX_CACHED_TEXTS = 64
"""The number of passages whose language is cached."""


def find_other_language(claim: str, answer: str, passages: Sequence[Passage]) -> str:
    """The ISO 639-1 code of the claim's language; empty if a passage has the same or an unknown one, or if in doubt.

    A claim that is too short to leave no doubt is in the language of the answer, unless it has only names and numbers.
    """
    languages = [_find_languages(passage) for passage in passages]
    if not all(languages):
        return ""
    known = frozenset[str]().union(*languages)
    other = _find_leader(claim, known, CLEAR_LEAD)
    if not other and not _has_only_names(claim) and _find_leader(claim, known, 0.0):
        other = _find_leader(answer, known, CLEAR_LEAD)
    return other


def _find_languages(passage: Passage) -> frozenset[str]:
    """The language of the document and that of the passage's text, as far as they are known."""
    return frozenset((passage.hit.origin.language, _identify_language(passage.text))) - {""}


_identify_language = lru_cache(MAX_CACHED_TEXTS)(identify_language)


def _find_leader(text: str, languages: frozenset[str], lead: float) -> str:
    """The likeliest language of the text if it leads the others by more than `lead`; else empty."""
    scores = rank_languages(text)
    best = max(scores, key=scores.__getitem__)
    own = max((scores[language] for language in languages if language in scores), default=scores[best])
    return best if scores[best] - own > lead else ""


def _has_only_names(claim: str) -> bool:
    return not any(word[0].isalpha() and not word[0].isupper() for word in claim.split())
