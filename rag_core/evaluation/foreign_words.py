"""The search for words that came from another conversation.

Whatever is searched for a turn must come from its own conversation: from its questions, its earlier answers, and the
titles that these cite. The check fails if, for example, two sessions share their messages.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from rag_core.evaluation.scripted_replies import MeasuredTurn

_WORD = re.compile(r"\w+")


def find_foreign_words(conversations: Mapping[str, Sequence[MeasuredTurn]]) -> dict[tuple[str, int], list[str]]:
    """The searched words that only other conversations have, by conversation and position; without empty lists."""
    spoken = {
        id: _split_words(text for turn in turns for text in _list_texts(turn)) for id, turns in conversations.items()
    }
    found = {}
    for id, turns in conversations.items():
        others = set[str]().union(*(words for other, words in spoken.items() if other != id))
        own = set[str]()
        for turn in turns:
            own |= _split_words([turn.turn.question])
            if foreign := (_split_words(turn.reply.searched) - own) & others:
                found[id, turn.position] = sorted(foreign)
            own |= _split_words(_list_texts(turn))
    return found


def _list_texts(turn: MeasuredTurn) -> list[str]:
    return [turn.turn.question, turn.reply.answer, *turn.reply.titles]


def _split_words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(text.casefold())}
