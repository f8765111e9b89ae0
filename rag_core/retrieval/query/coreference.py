"""What the words of a follow-up question refer to, found in the history by rules.

The title of the document cited last is the best guess: over the 1,424 follow-up questions of CANARD, 76 % of the words
that it adds are words that people add, but only 43 % of the words of the weightiest name.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import fsum

from rag_core.retrieval.query.follow_up import FollowUp, guess_language
from rag_core.storage.graph.extraction import list_possible_names, normalize_name
from rag_core.text.analysis import terms
from rag_core.text.stop_words import ALL_STOP_WORDS
from rag_core.types import Message

MAX_MESSAGES = 6
"""The latest messages in which names are searched."""

ROLE_WEIGHTS = {"user": 1.0, "assistant": 0.6}
NAME_AGING, TITLE_AGING = 0.7, 0.5
"""The factors of a name's weight for each later message, and of a title's weight for each later answer or question.

So the title that the last answer cites first outweighs all earlier citations of another one, which matters after a
change of the subject that was not detected. `benchmarks.changed_subjects` counts what follow-ups refer to.
"""
LATER_MARKER, SAID_WORD = 0.6, 0.3
"""The weight of a title whose marker is not the answer's first one, and of a word that the user has written."""


def find_referents(question: str, history: Sequence[Message], follow_up: FollowUp) -> tuple[str, ...]:
    """The title of the document cited last, or the weightiest name; nothing that the question names itself.

    A pronoun of a person also refers to the weightiest full name, unless the title is such a name.
    """
    title, *_ = [*rank_titles(history), ""]
    names = [name for name in rank_names(history) if not _contains(question, name)]
    if not title:
        return tuple(names[:1])
    if _contains(question, title):
        return ()
    if not follow_up.is_personal or any(_share_word(title, name) for name in names):
        return (title,)
    return (*[name for name in names if " " in name][:1], title)


def rank_titles(history: Sequence[Message]) -> list[str]:
    """The titles that the latest answers cite, the weightiest first.

    A title counts more for a late answer, for the first marker, and for each word that the user has written, above all
    in a late question. Without citations in the latest messages, these are the titles of the last answer that has any.
    """
    recent = history[-MAX_MESSAGES:]
    questions = [message.text for message in recent if message.role == "user"]
    language, weights = guess_language(questions), defaultdict[str, float](float)
    words = weigh_words(questions, language)
    answers = [message for message in history if message.titles]
    for age, answer in enumerate(reversed([answer for answer in answers if answer in recent] or answers[-1:])):
        for position, title in enumerate(answer.titles):
            weights[title] += TITLE_AGING**age * (1.0 if position == 0 else LATER_MARKER)
    for title in weights:
        weights[title] += SAID_WORD * fsum(words.get(word, 0.0) for word in {*terms(title, language)})
    return sorted(weights, key=lambda title: -weights[title])


def weigh_words(questions: Sequence[str], language: str) -> dict[str, float]:
    """The weight of each word of the questions: 1 if the last one has it, and less if only earlier ones do."""
    ages = range(len(questions) - 1, -1, -1)
    return {
        word: TITLE_AGING**age
        for age, question in zip(ages, questions, strict=True)
        for word in terms(question, language)
    }


def _contains(text: str, name: str) -> bool:
    return f" {normalize_name(name)} " in f" {normalize_name(text)} "


def _share_word(first: str, second: str) -> bool:
    return bool({*normalize_name(first).split()} & {*normalize_name(second).split()} - ALL_STOP_WORDS)


def list_answers(history: Sequence[Message]) -> list[Message]:
    """The answers, oldest first; in a session that was recorded, those that cite documents.

    The others are abstentions, whose words name what was not found.
    """
    is_recorded = any(message.standalone for message in history)
    return [message for message in history if message.role == "assistant" and (message.titles or not is_recorded)]


def rank_names(history: Sequence[Message]) -> list[str]:
    """The names in the latest messages, the weightiest first. A name within a longer one counts as that."""
    weights, labels = defaultdict[str, float](float), dict[str, str]()
    answers = list_answers(history)
    for age, message in enumerate(reversed(history[-MAX_MESSAGES:])):
        if message.role == "assistant" and message not in answers:
            continue
        for name, label in {normalize_name(label): label for label in list_possible_names(message.text)}.items():
            weights[name] += ROLE_WEIGHTS[message.role] * NAME_AGING**age
            labels.setdefault(name, label)
    for name in sorted(weights, key=len):
        longer = next((other for other in weights if other != name and f" {name} " in f" {other} "), "")
        if longer:
            weights[longer] += weights.pop(name)
    return [labels[name] for name in sorted(weights, key=lambda name: -weights[name])]
