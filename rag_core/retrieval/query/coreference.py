"""What the words of a follow-up question refer to, found in the history by rules.

The title of the document cited last is the best guess: over the 1,424 follow-up questions of CANARD, 76 % of the words
that it adds are words that people add, but only 43 % of the words of the weightiest name.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from rag_core.retrieval.query.follow_up import FollowUp, guess_language
from rag_core.storage.graph.extraction import list_possible_names, normalize_name
from rag_core.text.analysis import terms
from rag_core.text.stop_words import STOP_WORDS
from rag_core.types import Message

MAX_MESSAGES = 6
"""The latest messages in which names are searched."""

ROLE_WEIGHTS = {"user": 1.0, "assistant": 0.6}
AGING = 0.8
"""The factor of a name's weight for each later message."""

_STOP_WORDS = frozenset[str]().union(*STOP_WORDS.values())


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
    """The titles of the answer that cited documents last, those first that share most words with the user's messages.

    Equal ones are ranked by the number of answers that cite them, and then by their first marker.
    """
    recent = history[-MAX_MESSAGES:]
    said = [message.text for message in recent if message.role == "user"]
    language = guess_language(said)
    words = set(terms(" ".join(said), language))
    counts = Counter(title for message in recent for title in message.titles)
    last = next((message.titles for message in reversed(history) if message.titles), ())
    return sorted(last, key=lambda title: (-len(words.intersection(terms(title, language))), -counts[title]))


def _contains(text: str, name: str) -> bool:
    return f" {normalize_name(name)} " in f" {normalize_name(text)} "


def _share_word(first: str, second: str) -> bool:
    return bool({*normalize_name(first).split()} & {*normalize_name(second).split()} - _STOP_WORDS)


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
            weights[name] += ROLE_WEIGHTS[message.role] * AGING**age
            labels.setdefault(name, label)
    for name in sorted(weights, key=len):
        longer = next((other for other in weights if other != name and f" {name} " in f" {other} "), "")
        if longer:
            weights[longer] += weights.pop(name)
    return [labels[name] for name in sorted(weights, key=lambda name: -weights[name])]
