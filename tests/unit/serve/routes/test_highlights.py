"""The places of the question's words in the text of a hit."""

import re
from collections.abc import Sequence

import pytest
from example_counts import scale_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.wire import highlights
from rag_core.wire.highlights import find_highlights

LETTERS = st.text(alphabet="aAbé_1İΣß鍵 -.\n", max_size=40)


def reference_highlights(question: str, text: str) -> Sequence[tuple[int, int]]:
    """Compares each word of the text by itself."""

    def lower(text: str) -> str:
        return text.replace("\u0130", "i").lower()

    words = tuple(word for word in re.findall(r"\w+", lower(question)) if len(word) >= 3)
    return [word.span() for word in re.finditer(r"\w+", lower(text)) if words and word[0].startswith(words)]


@settings(max_examples=scale_examples(500), deadline=None)
@given(words=st.lists(LETTERS, max_size=4), text=st.lists(LETTERS, max_size=6), shared=LETTERS)
def test_words_that_begin_like_one_of_the_question_are_highlighted(
    words: list[str], text: list[str], shared: str
) -> None:
    question, passage = " ".join([*words, shared]), shared.join(text)
    assert find_highlights(question, passage) == reference_highlights(question, passage)


def test_a_word_is_highlighted_once_and_only_from_its_beginning() -> None:
    assert find_highlights("Keys, keyring!", "Monkeys have KEYS and keyrings: keys") == [(13, 17), (22, 30), (32, 36)]


class Counting:
    """A pattern that counts the characters it reads."""

    def __init__(self) -> None:
        self.pattern, self.read = re.compile(r"\w+"), 0

    def findall(self, text: str) -> list[str]:
        return self.pattern.findall(text)

    def match(self, text: str, at: int = 0) -> re.Match[str] | None:
        match = self.pattern.match(text, at)
        self.read += len(match[0]) if match else 0
        return match


def test_a_word_of_a_hundred_thousand_letters_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting()
    monkeypatch.setattr(highlights, "_WORD", counting)
    assert find_highlights("aaa", "a" * 100_000 + " b" + "a" * 100_000) == [(0, 100_000)]
    assert counting.read <= 200_001
