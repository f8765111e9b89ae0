from collections.abc import Sequence

import pytest

from rag_core.answering.generation.history import recent_messages
from rag_core.types import Message

SAID = [
    Message(role="user", text="how are keys rotated"),
    Message(role="assistant", text="every month"),
    Message(role="user", text="and doors"),
    Message(role="assistant", text="never"),
]


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@pytest.mark.parametrize(("tokens", "count"), [(100, 4), (9, 4), (8, 2), (3, 2), (2, 0), (0, 0)])
def test_the_last_messages_that_fit_are_kept_from_a_question_on(tokens: int, count: int) -> None:
    assert recent_messages(SAID, tokens, words) == tuple(SAID[len(SAID) - count :])


def test_a_conversation_that_fits_is_kept_whichever_role_began_it() -> None:
    assert recent_messages(SAID[1:], 5, words) == tuple(SAID[1:])


def test_messages_before_the_first_that_does_not_fit_are_not_even_counted() -> None:
    counted: list[str] = []

    def counting(texts: Sequence[str]) -> list[int]:
        counted.extend(texts)
        return words(texts)

    recent_messages(SAID, 4, counting)
    assert counted == ["never", "and doors", "every month"]
