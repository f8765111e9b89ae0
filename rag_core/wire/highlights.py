"""The words of a question in a text."""

import re
from collections.abc import Iterator

MIN_WORD_CHARS = 3
_WORD = re.compile(r"\w+")


def find_highlights(question: str, text: str) -> list[tuple[int, int]]:
    """The spans of the words in the text that begin with a word of the question: `key` also finds `keys`."""
    words = {word for word in _WORD.findall(_lower_same_length(question)) if len(word) >= MIN_WORD_CHARS}
    lower_text = _lower_same_length(text)
    return sorted({span for word in words for span in _find_words(word, lower_text)})


def _find_words(prefix: str, text: str) -> Iterator[tuple[int, int]]:
    """Yields the spans of the words that begin with the prefix. Reads each word once, even if it repeats the prefix."""
    start = text.find(prefix)
    while start >= 0 and (match := _WORD.match(text, start)):
        if not start or not _WORD.match(text[start - 1]):
            yield match.span()
        start = text.find(prefix, match.end())


def _lower_same_length(text: str) -> str:
    """Converts to lower case and keeps the length: the only letter that would become two is replaced first."""
    return text.replace("\u0130", "i").lower()
