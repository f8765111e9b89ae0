"""The rule that recognizes a follow-up question by its words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from rag_core.text.analysis import terms
from rag_core.text.stop_words import STOP_WORDS
from rag_core.types import Message

MAX_CONTENT_WORDS = 3
"""A question with at most this many words besides function words hardly stands alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpWords:
    """The words of one language.

    `openings` are first words, `questions` begin a question, and `things` and `people` refer to what was mentioned.
    """

    questions: frozenset[str] = frozenset()
    openings: frozenset[str] = frozenset()
    indicators: tuple[str, ...] = ()
    things: frozenset[str] = frozenset()
    people: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """Why a question continues its conversation.

    `references` are its words for what was mentioned, in their order. `is_personal` is true if one is for a person.
    `is_bare` is true if it has at most one content word. `is_known` is false if its language has no lists, so that
    nothing can be concluded from its words.
    """

    references: tuple[str, ...] = ()
    is_personal: bool = False
    is_short: bool = False
    is_bare: bool = False
    is_indicated: bool = False
    is_known: bool = True

    def __bool__(self) -> bool:
        return bool(self.references) or self.is_short or self.is_indicated


def recognize_follow_up(question: str, history: Sequence[Message]) -> FollowUp:
    """What shows that the question continues the history; false if nothing does."""
    language = guess_language([question, *(message.text for message in history if message.role == "user")])
    listed = _load_words().get(language, FollowUpWords())
    words = terms(question, "")
    spaced, content = f" {' '.join(words)} ", find_content_words(words, language)
    return FollowUp(
        references=tuple(word for word in words if word in listed.things | listed.people),
        is_personal=not listed.people.isdisjoint(words),
        is_short=len(content) <= MAX_CONTENT_WORDS,
        is_bare=len(content) <= 1,
        is_indicated=not listed.openings.isdisjoint(words[:1])
        or any(f" {indicator} " in spaced for indicator in listed.indicators),
        is_known=language in _load_words(),
    )


def is_question(message: str) -> bool:
    """True if the message has a question mark or a question word; in an unknown language, one of any language."""
    by_language = _load_words()
    lists = by_language.get(guess_language([message]))
    questions = frozenset[str]().union(*(listed.questions for listed in ([lists] if lists else by_language.values())))
    return "?" in message or "？" in message or not questions.isdisjoint(terms(message, ""))  # noqa: RUF001


def find_content_words(words: Sequence[str], language: str) -> list[str]:
    """The words besides the function words of the language; all words if it is unknown."""
    return [word for word in words if word not in STOP_WORDS.get(language, ())]


def guess_language(texts: Sequence[str]) -> str:
    """The language that has most of the texts' words as function words; empty if none has any.

    Questions are too short for the identification of languages by their letters.
    """
    words = terms(" ".join(texts), "")
    counts = {language: sum(word in listed for word in words) for language, listed in STOP_WORDS.items()}
    best = max(sorted(counts), key=lambda language: counts[language])
    return best if counts[best] else ""


@cache
def _load_words() -> dict[str, FollowUpWords]:
    text = files("rag_core.retrieval.query").joinpath("follow_up.yaml").read_text(encoding="utf-8")
    return {
        language: FollowUpWords(
            questions=frozenset(lists["questions"].split()),
            openings=frozenset(lists["openings"].split()),
            indicators=tuple(" ".join(terms(phrase, "")) for phrase in lists["indicators"]),
            things=frozenset(lists["things"].split()),
            people=frozenset(lists["people"].split()),
        )
        for language, lists in yaml.safe_load(text).items()
    }
