"""The subjects of a conversation, and the one whose documents a question can refer to."""

from collections.abc import Sequence

from rag_core.retrieval.query.follow_up import guess_language
from rag_core.text.analysis import terms
from rag_core.text.stop_words import ALL_STOP_WORDS
from rag_core.types import Message


def select_subject(question: str, history: Sequence[Message]) -> Sequence[Message]:
    """The messages since the last change of the subject, or those of the latest earlier subject that is named again.

    A question names a subject again with a word of a title that was cited there, if nothing after the last change has
    this word.
    """
    *earlier, current = split_subjects(history)
    if not earlier:
        return current
    language = guess_language([question, *(message.text for message in history if message.role == "user")])
    texts = [text for message in current for text in (message.text, *message.titles)]
    new_words = {*terms(question, language)} - {*terms(" ".join(texts), language)} - ALL_STOP_WORDS
    for subject in reversed(earlier):
        titles = [title for message in subject for title in message.titles]
        if not new_words.isdisjoint(terms(" ".join(titles), language)):
            return subject
    return current


def split_subjects(history: Sequence[Message]) -> list[Sequence[Message]]:
    """The history in parts, each of which begins where a message changed the subject; one empty part if it is empty."""
    starts = [position for position, message in enumerate(history) if message.is_shift and position]
    return [history[start:end] for start, end in zip([0, *starts], [*starts, len(history)], strict=True)]
